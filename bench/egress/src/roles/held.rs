//! Inside: opens many connections, holds them, and uses every one of them again when it is told to.

use super::{make_room, usage};
use crate::Outcome;
use crate::request::{Wish, request};
use crate::target::Dialler;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// How many, the name, the target. Says how many it has opened, waits for a byte, and says how many answered.
pub(crate) fn run(words: &[&str]) -> Outcome<()> {
    let &[count, name, target] = words else { return usage("holder") };
    make_room()?;
    let dialler = Dialler::new(target.parse()?)?;
    let request = request(name, Wish::Echo)?;
    let mut streams = Vec::new();
    for _ in 0..count.parse()? {
        // One that is refused is the last: there is a limit, and the figures say which.
        let Ok(stream) = open(&dialler, &request) else { break };
        streams.push(stream);
    }
    println!("{}", streams.len());
    io::stdout().flush()?;
    io::stdin().read_exact(&mut [0])?;
    println!("{}", streams.iter_mut().filter_map(|stream| answers(stream).ok()).count());
    Ok(())
}

fn open(dialler: &Dialler, request: &[u8]) -> io::Result<TcpStream> {
    let mut stream = dialler.connect()?;
    stream.write_all(request)?;
    stream.read_exact(&mut [0])?;
    Ok(stream)
}

fn answers(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(&[42])?;
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    if byte == [42] { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}
