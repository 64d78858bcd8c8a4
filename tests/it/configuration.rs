//! `docs/configuration.md` says what the program has.

use std::path::Path;

/// With `GAPLESS_BLESS=1` it writes the page anew.
#[test]
fn the_reference_is_what_the_program_has() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    let page = gapless::config::reference();
    if std::env::var_os("GAPLESS_BLESS").is_some() {
        std::fs::write(&path, &page).expect("written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let mut lines = kept.lines().zip(page.lines()).enumerate();
    if let Some((at, (old, new))) = lines.find(|(_, (old, new))| old != new) {
        panic!("line {}: {old}\ninstead of {new}\n(GAPLESS_BLESS=1 writes it anew)", at + 1);
    }
    assert_eq!(kept, page, "GAPLESS_BLESS=1 writes it anew");
}

/// The example of the page is one that would be served.
#[test]
fn the_example_of_the_reference_is_accepted() {
    let page = gapless::config::reference();
    let (_, rest) = page.split_once("```toml\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    let args = ["gapless", "serve", "--config", "gapless.toml"].map(Into::into);
    let read = |_: &Path| Ok(example.to_owned());
    match gapless::config::from_args(args.into_iter(), |_| None, read) {
        Ok(gapless::config::Command::Serve(config)) => {
            let paths: Vec<_> = config.servers.iter().map(|server| server.path.as_str()).collect();
            assert_eq!(paths, ["/files/mcp", "/tickets/mcp"]);
        }
        other => panic!("{other:?}"),
    }
}
