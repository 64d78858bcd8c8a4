//! Event ids as the clients hold them, spelled and read by the shipped `mcp::event_id`.

use gapless::mcp::event_id::{self, Cursor, Token};
use gapless::mcp::session_id::SessionId;
use gapless::stream::resume::Class;

use crate::world::Logical;

const KEY: [u8; 32] = [7; 32];

/// The epoch of every log of the simulator; cursors of older ones are what a restart leaves.
pub const EPOCH: u32 = 3;

/// What an event id means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub session: usize,
    pub stream: usize,
    pub epoch: u32,
    pub number: u64,
}

impl Place {
    pub fn new(session: usize, stream: usize, number: u64) -> Self {
        Self { session, stream, epoch: EPOCH, number }
    }

    pub fn id(&self) -> String {
        let token = Token::mint(&KEY, &session_id(self.session), self.stream as u32, self.epoch);
        let mut id = Vec::new();
        token.push_id(self.number, &mut id);
        String::from_utf8(id).expect("ASCII")
    }
}

/// A `Last-Event-ID`, and what it means if it is genuine.
#[derive(Clone, Debug)]
pub struct Presented {
    pub text: String,
    pub place: Option<Place>,
}

impl From<Place> for Presented {
    fn from(place: Place) -> Self {
        Self { text: place.id(), place: Some(place) }
    }
}

fn session_id(session: usize) -> SessionId {
    SessionId::from_random(0, [session as u8; 16])
}

/// Reads an id in `session`.
pub fn read(session: usize, id: &str) -> Option<Place> {
    match event_id::verify(id.as_bytes(), &KEY, &session_id(session), EPOCH, EPOCH)? {
        Cursor::Number { stream, epoch, number } => {
            Some(Place { session, stream: stream as usize, epoch, number })
        }
        Cursor::End { .. } => None,
    }
}

/// What the server makes of an id that is presented in `session`.
pub fn resolve(session: usize, id: &str, streams: &[Logical]) -> Result<Place, Class> {
    let place = read(session, id).ok_or(Class::Unknown)?;
    admit(place, streams)
}

/// What the server must make of it, by its meaning.
pub fn expected(
    session: usize,
    presented: &Presented,
    streams: &[Logical],
) -> Result<Place, Class> {
    let own = presented.place.filter(|place| place.session == session);
    admit(own.ok_or(Class::Unknown)?, streams)
}

fn admit(place: Place, streams: &[Logical]) -> Result<Place, Class> {
    if place.epoch != EPOCH {
        return Err(Class::EpochChanged);
    }
    if place.stream >= streams.len() {
        return Err(Class::Expired);
    }
    Ok(place)
}
