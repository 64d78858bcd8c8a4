//! `docs/security.md`, "Tokens": JWTs by a JWKS that is served over HTTP and rotated meanwhile.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::client::{Answer, Connection, End, NEWEST, ask, bare, call_body, initialize_body, post};
use crate::server::Server;

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

/// A key pair of P-256 (PKCS #8, RFC 5958, around RFC 5915).
fn key(seed: u8) -> EncodingKey {
    let mut der = vec![0x30, 0x41, 2, 1, 0, 0x30, 0x13, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2];
    der.extend([1, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7, 4, 0x27, 0x30, 0x25]);
    der.extend([2, 1, 1, 4, 0x20]);
    der.extend([seed; 32]);
    EncodingKey::from_ec_der(&der)
}

fn document(seeds: &[u8]) -> String {
    let jwk = |seed: &u8| {
        let jwk = Jwk::from_encoding_key(&key(*seed), Algorithm::ES256).expect("a public key");
        let mut jwk = serde_json::to_value(jwk).expect("JSON");
        jwk["kid"] = json!(format!("k{seed}"));
        jwk
    };
    json!({"keys": seeds.iter().map(jwk).collect::<Vec<_>>()}).to_string()
}

/// A token of this subject by the key `k{seed}`, for so long.
fn token(seed: u8, subject: &str, seconds: u64, change: impl FnOnce(&mut Value)) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock");
    let mut claims = json!({"iss": "https://id.example", "aud": "mcp", "sub": subject,
        "exp": now.as_secs_f64() + seconds as f64, "scope": "mcp:use"});
    change(&mut claims);
    let mut header = Header::new(Algorithm::ES256);
    header.kid = Some(format!("k{seed}"));
    encode(&header, &claims, &key(seed)).expect("a token")
}

/// An issuer's JWKS over HTTP; the text may be replaced.
struct Issuer {
    url: String,
    answer: Arc<Mutex<(u16, String)>>,
    asked: Arc<AtomicUsize>,
}

impl Issuer {
    fn start(seeds: &[u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/jwks", listener.local_addr().expect("an address"));
        let answer = Arc::new(Mutex::new((200, document(seeds))));
        let asked = Arc::new(AtomicUsize::new(0));
        let (served, counted) = (Arc::clone(&answer), Arc::clone(&asked));
        // Ends with the process.
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let mut lines = BufReader::new(&socket).lines().map_while(Result::ok);
                lines.find(String::is_empty);
                counted.fetch_add(1, Ordering::Relaxed);
                let (status, body) = served.lock().unwrap().clone();
                let length = body.len();
                let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n");
                let _ = (&socket)
                    .write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes());
            }
        });
        Self { url, answer, asked }
    }

    fn set(&self, status: u16, body: String) {
        *self.answer.lock().unwrap() = (status, body);
    }

    fn server(&self, flags: &[&str]) -> Server {
        let rules = ["--jwt-issuer", "https://id.example", "--jwt-audience", "mcp"];
        let own = ["--jwt-jwks", &self.url, "--jwt-scopes", "mcp:use", "--jwt-leeway", "0s"];
        Server::start(&[&rules[..], &own[..], flags].concat())
    }
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

fn initialize(server: &Server, token: &str) -> Answer {
    ask(server.address, post(&bearer(token), &initialize_body(NEWEST)))
}

fn session(server: &Server, token: &str) -> String {
    let answer = initialize(server, token);
    assert_eq!(answer.status(), 200, "{answer:?}");
    let id = answer.field("mcp-session-id").expect("a session");
    format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: {NEWEST}\r\n")
}

#[test]
fn tokens_are_held_to_their_claims() {
    let issuer = Issuer::start(&[1]);
    let server = issuer.server(&[]);
    let good = token(1, "alice", 60, |_| ());
    let fields = session(&server, &good);
    // Another token of the same subject is the same principal; another subject is not.
    let again = token(1, "alice", 90, |_| ());
    for (token, status) in [(&again, 200), (&token(1, "bob", 60, |_| ()), 404)] {
        let answer = ask(server.address, post(&format!("{fields}{}", bearer(token)), LIST));
        assert_eq!(answer.status(), status);
    }
    for (claim, value) in [
        ("iss", json!("https://evil.example")),
        ("aud", json!("somebody-else")),
        ("exp", json!(1_700_000_000)),
        ("nbf", json!(99_999_999_999_u64)),
    ] {
        let refused = initialize(&server, &token(1, "alice", 60, |claims| claims[claim] = value));
        assert_eq!(refused.status(), 401, "{claim}");
        let challenge = refused.field("www-authenticate").expect("a challenge");
        assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
        assert!(challenge.contains("scope=\"mcp:use\""), "{challenge}");
    }
    let narrow = token(1, "alice", 60, |claims| claims["scope"] = json!("other"));
    let refused = initialize(&server, &narrow);
    assert_eq!(refused.status(), 403);
    let challenge = refused.field("www-authenticate").expect("a challenge");
    assert!(challenge.contains("error=\"insufficient_scope\", scope=\"mcp:use\""), "{challenge}");
    let stopped = server.stop();
    let logs = format!("{:?}", stopped.logs);
    let secret = good.rsplit('.').next().expect("a signature");
    assert!(logs.contains("alice") && !logs.contains(secret));
}

#[test]
fn keys_are_rotated_while_requests_run() {
    let issuer = Issuer::start(&[1]);
    let server = issuer.server(&[]);
    let old = token(1, "alice", 60, |_| ());
    let fields = session(&server, &old);
    let address = server.address;
    let list = move |token: &str| {
        let request = post(&format!("{fields}{}", bearer(token)), LIST);
        ask(address, request).status()
    };
    std::thread::scope(|scope| {
        let running = scope.spawn(|| (0..200).filter(|_| list(&old) != 200).count());
        // Both keys are published for a while, as issuers do; the first token of the new one is
        // served without having been refused.
        issuer.set(200, document(&[1, 2]));
        let new = token(2, "alice", 60, |_| ());
        assert_eq!(list(&new), 200);
        assert_eq!(issuer.asked.load(Ordering::Relaxed), 2);
        assert_eq!(running.join().expect("it ends"), 0);
    });
    // Unknown keys do not make it ask again and again.
    for _ in 0..20 {
        assert_eq!(list(&token(3, "alice", 60, |_| ())), 401);
    }
    assert_eq!(issuer.asked.load(Ordering::Relaxed), 2);
}

#[test]
fn an_issuer_that_fails_takes_no_good_key_away() {
    let issuer = Issuer::start(&[1]);
    let server = issuer.server(&[]);
    issuer.set(500, "no".into());
    assert_eq!(initialize(&server, &token(2, "a", 60, |_| ())).status(), 401);
    assert_eq!(issuer.asked.load(Ordering::Relaxed), 2);
    assert_eq!(initialize(&server, &token(1, "a", 60, |_| ())).status(), 200);
    let line = server.wait_for_log("the failure", |line| {
        line["message"].as_str().is_some_and(|text| text.contains("the last ones stay"))
    });
    assert!(line["error"].as_str().is_some_and(|error| error.contains("500")), "{line}");
}

#[test]
fn a_stream_ends_as_planned_with_its_token_and_goes_on_with_another() {
    let issuer = Issuer::start(&[1]);
    let server = issuer.server(&[]);
    let short = token(1, "alice", 1, |_| ());
    let fields = session(&server, &short);
    let mut stream = Connection::open(server.address);
    let call = call_body("7", "stream", &json!({"count": 20, "interval_ms": 100}));
    stream.send(post(&format!("{fields}{}", bearer(&short)), &call));
    let mut listener = Connection::open(server.address);
    listener.send(bare("GET", &format!("{fields}{}", bearer(&short))));
    assert_eq!((stream.head().status, listener.head().status), (200, 200));
    let before = stream.events();
    assert_eq!(stream.end(), Some(End::Whole));
    assert!(stream.is_closed());
    listener.events();
    assert_eq!(listener.end(), Some(End::Whole));
    let cursor = stream.cursor().expect("a cursor");
    let resume = |token: &str| {
        let fields = format!("{fields}{}Last-Event-ID: {cursor}\r\n", bearer(token));
        let mut resumed = Connection::open(server.address);
        resumed.send(bare("GET", &fields));
        resumed
    };
    assert_eq!(resume(&short).answer().status(), 401);
    let mut resumed = resume(&token(1, "alice", 60, |_| ()));
    assert_eq!(resumed.head().status, 200);
    let after = resumed.events();
    let numbers: Vec<u64> =
        before.iter().chain(&after).filter(|e| !e.data.is_empty()).map(|e| e.number()).collect();
    let whole: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert_eq!(numbers, whole, "none missing, none twice");
    assert!(after.last().expect("events").json().get("result").is_some());
}

#[test]
fn clients_are_told_who_gives_tokens() {
    let issuer = Issuer::start(&[1]);
    let flags = [
        "--oauth-issuer",
        "https://id.example",
        "--public-base",
        "https://mcp.example",
        "--allow-origin",
        "https://app.example",
    ];
    let server = issuer.server(&flags);
    let refused = ask(server.address, post("", LIST));
    assert_eq!(refused.status(), 401);
    let path = "/.well-known/oauth-protected-resource";
    let named = format!("resource_metadata=\"https://mcp.example{path}/mcp\"");
    assert!(refused.field("www-authenticate").expect("a challenge").contains(&named));
    for at in [path.to_owned(), format!("{path}/mcp")] {
        let answer = ask(server.address, bare("GET", "").replacen("/mcp", &at, 1));
        assert_eq!(answer.status(), 200);
        assert_eq!(
            answer.json(),
            json!({"resource": "https://mcp.example/mcp", "scopes_supported": ["mcp:use"],
                   "authorization_servers": ["https://id.example"],
                   "bearer_methods_supported": ["header"]})
        );
        let asked = "Origin: https://app.example\r\nAccess-Control-Request-Method: GET\r\n";
        let preflight = ask(server.address, bare("OPTIONS", asked).replacen("/mcp", &at, 1));
        assert_eq!(preflight.status(), 204);
        let post = post("", LIST).replacen("/mcp", &at, 1);
        assert_eq!(ask(server.address, post).status(), 405);
    }
    let plain = Server::start(&[]);
    let answer = ask(plain.address, bare("GET", "").replacen("/mcp", path, 1));
    assert_eq!(answer.status(), 404);
}
