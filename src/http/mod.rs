//! HTTP/1.1 (RFC 9112) and Server-Sent Events (WHATWG), pure.
