//! Asking a coordinator for its status, from outside of any job.

use crate::address::Address;
use crate::auth::{self, Handshake, Key};
use crate::socket::{Channel, Input, Interest, Poller, Stream, now_ns};
use crate::text::printable;
use crate::wire::Message;
use std::time::Duration;

/// Asks a coordinator for its status: JSON. Blocks for at most `timeout`.
pub fn query_status(address: &Address, key: Option<&Key>, timeout: Duration) -> Result<String, String> {
    let failed = |why: String| format!("cannot ask the coordinator at {address}: {why}");
    let mut channel = Channel::new(Stream::connect(address).map_err(|error| failed(error.to_string()))?);
    let poller = Poller::new().and_then(|poller| {
        poller.add(&channel.stream, 0, Interest::READ)?;
        Ok(poller)
    });
    let mut poller = poller.map_err(|error| failed(error.to_string()))?;
    let mut handshake = None;
    let mut is_trusted = matches!(address, Address::Unix(_));
    if is_trusted {
        channel.queue(&Message::StatusQuery {});
    }
    let deadline_ns = now_ns() + timeout.as_nanos() as u64;
    let mut scratch = [0; 16 << 10];
    let mut text = String::new();
    loop {
        channel.flush().map_err(|error| failed(error.to_string()))?;
        let now = now_ns();
        if now >= deadline_ns {
            return Err(failed("it does not answer".into()));
        }
        poller
            .wait(Duration::from_nanos(deadline_ns - now), &mut Vec::new())
            .map_err(|error| failed(error.to_string()))?;
        let input = channel.receive(&mut scratch);
        while let Some(message) = channel.take().map_err(|error| failed(error.to_string()))? {
            match message {
                Message::Challenge { nonce: server } => {
                    let key = key.cloned().ok_or_else(|| failed("it wants a key".into()))?;
                    let client = auth::nonce().map_err(|error| failed(error.to_string()))?;
                    channel.queue(&handshake.insert(Handshake::new(key, client)).prove(server));
                }
                Message::Proven { mac } => {
                    if !handshake.as_ref().is_some_and(|handshake| handshake.is_proven_by(&mac)) {
                        return Err(failed("it does not have the key".into()));
                    }
                    is_trusted = true;
                    channel.queue(&Message::StatusQuery {});
                }
                Message::Status { .. } if !is_trusted => {
                    return Err(failed("it has not proven that it has the key".into()));
                }
                Message::Status { last, text: piece } => {
                    text.push_str(&piece);
                    if last {
                        return Ok(text);
                    }
                }
                Message::Refuse { reason } => return Err(failed(printable(&reason))),
                _ => return Err(failed("it answers something else".into())),
            }
        }
        match input {
            Input::Closed => return Err(failed("it closed the connection".into())),
            Input::Failed(error) => return Err(failed(error.to_string())),
            Input::Some | Input::Empty => {}
        }
    }
}
