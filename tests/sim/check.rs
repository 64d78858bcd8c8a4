//! How a violated promise is reported: a panic that begins with the name of the check.

/// Ends the run: the promise behind check `name` does not hold.
#[track_caller]
pub fn violated(name: &str, detail: impl AsRef<str>) -> ! {
    panic!("check `{name}`: {}", detail.as_ref());
}

/// Ends the run unless `actual` is what the oracle expects.
#[track_caller]
pub fn same<T: PartialEq + std::fmt::Debug>(name: &str, what: &str, actual: T, expected: T) {
    if actual != expected {
        violated(name, format!("{what} is {actual:?}, the oracle says {expected:?}"));
    }
}
