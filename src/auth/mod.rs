//! Who may ask: checks that come before dispatch and before the session is looked up, pure.

pub mod cors;
pub mod gate;
pub mod jwks;
pub mod jwt;
pub mod keys;
pub mod metadata;
pub mod origin;
