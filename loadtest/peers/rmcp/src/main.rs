//! An MCP server on rmcp, the Rust SDK, with the tools `echo` and `stream` that gapless' built-in
//! server has, on one thread.
//!
//! `gapless-peer-rmcp MODE` listens on a free port of 127.0.0.1 and prints its endpoint. The modes:
//!
//! * `stateless`: no sessions, answers as JSON.
//! * `stateful`: sessions, answers as SSE streams that cannot be resumed after their end.
//! * `store`: the same with an event store in memory, so that streams can be resumed.

use std::sync::Arc;

use axum::Router;
use axum::serve::ListenerExt;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{ProgressNotificationParam, ServerCapabilities, ServerConfig};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, schemars, tool, tool_handler, tool_router};
use tokio::net::TcpListener;

mod store;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Echo {
    text: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Flood {
    /// How many messages.
    count: u64,
    /// Bytes of padding in each.
    size: usize,
}

#[derive(Clone)]
struct Tools {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Tools {
    #[tool(description = "Returns the text that it is given")]
    async fn echo(&self, Parameters(Echo { text }): Parameters<Echo>) -> String {
        text
    }

    /// Reports progress: rmcp sends nothing else on the stream of the call itself; log messages go
    /// to the session's GET stream.
    #[tool(description = "Reports numbered progress on the stream of this call, then its result")]
    async fn stream(
        &self,
        Parameters(Flood { count, size }): Parameters<Flood>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        let token = context
            .meta
            .get_progress_token()
            .ok_or_else(|| ErrorData::invalid_params("a progress token is needed", None))?;
        let pad = "x".repeat(size);
        for seq in 1..=count {
            let progress =
                ProgressNotificationParam::new(token.clone(), seq as f64).with_message(pad.clone());
            context
                .peer
                .notify_progress(progress)
                .await
                .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        }
        Ok(format!("{count} events sent"))
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

/// The HTTP service of one mode; `None` for an unknown one.
fn router(mode: &str) -> Option<Router> {
    let stateful = match mode {
        "stateless" => false,
        "stateful" | "store" => true,
        _ => return None,
    };
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(stateful)
        .with_json_response(!stateful);
    let mut sessions = LocalSessionManager::default();
    if mode == "store" {
        sessions = sessions.with_event_store(Arc::new(store::Memory::default()));
    }
    let tools = || Ok(Tools { tool_router: Tools::tool_router() });
    let service = StreamableHttpService::new(tools, Arc::new(sessions), config);
    Some(Router::new().nest_service("/mcp", service))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let mode = std::env::args().nth(1).unwrap_or_default();
    let Some(router) = router(&mode) else {
        eprintln!("usage: gapless-peer-rmcp stateless|stateful|store");
        std::process::exit(2);
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    // Else an answer in two writes waits for the client's delayed acknowledgement.
    let listener = listener.tap_io(|socket| {
        if let Err(error) = socket.set_nodelay(true) {
            eprintln!("no TCP_NODELAY: {error}");
        }
    });
    axum::serve(listener, router).await
}
