//! Measures answers to questions for a name.

use super::{seconds, usage};
use crate::Outcome;
use crate::query::{A, answered, question};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Seconds, the server, the name. Prints answers per second and their average time in microseconds, with many
/// questions under way; the same time with one at a time; and how many got no answer.
pub(crate) fn run(words: &[&str]) -> Outcome<()> {
    let &[time, server, name] = words else { return usage("DNS client") };
    let (time, server) = (seconds(time)?, server.parse::<SocketAddr>()?);
    let alone = Asker::new(server, name)?.ask(1, time / 4)?;
    let busy = Asker::new(server, name)?.ask(UNDER_WAY, time)?;
    println!("{} {} {} {}", busy.rate, busy.average, alone.average, alone.lost + busy.lost);
    Ok(())
}

struct Asker {
    socket: UdpSocket,
    /// Only its number changes.
    question: Vec<u8>,
}

struct Answers {
    rate: f64,
    average: f64,
    lost: u64,
}

impl Asker {
    fn new(server: SocketAddr, name: &str) -> Outcome<Asker> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(WAIT_TIMEOUT))?;
        Ok(Asker { socket, question: question(0, name, A) })
    }

    /// Asks the next question whenever an answer comes.
    fn ask(mut self, under_way: usize, time: Duration) -> Outcome<Answers> {
        let start = Instant::now();
        let mut sent = vec![start; NUMBERS];
        let (mut next, mut answers, mut lost, mut total) = (0_usize, 0_u64, 0_u64, Duration::ZERO);
        for _ in 0..under_way {
            self.send(&mut next, &mut sent)?;
        }
        let mut buffer = [0; 1024];
        while start.elapsed() < time {
            match self.socket.recv(&mut buffer) {
                Ok(length) => {
                    let number = answered(&buffer[..length]).ok_or("an answer without an address")?;
                    total += sent[usize::from(number)].elapsed();
                    answers += 1;
                    self.send(&mut next, &mut sent)?;
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    lost += under_way as u64;
                    for _ in 0..under_way {
                        self.send(&mut next, &mut sent)?;
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Answers {
            rate: answers as f64 / start.elapsed().as_secs_f64(),
            average: total.as_secs_f64() * 1e6 / answers as f64,
            lost,
        })
    }

    fn send(&mut self, next: &mut usize, sent: &mut [Instant]) -> Outcome<()> {
        self.question[..2].copy_from_slice(&(*next as u16).to_be_bytes());
        sent[*next] = Instant::now();
        *next = (*next + 1) % NUMBERS;
        self.socket.send(&self.question)?;
        Ok(())
    }
}

/// Questions at a time; with more of them a server's time is only the time in its queue.
const UNDER_WAY: usize = 16;
const NUMBERS: usize = 1 << 16;
const WAIT_TIMEOUT: Duration = Duration::from_millis(500);
