//! Egress where no socket can be handed to the host: connections and DNS queries are accepted here and go to the host as
//! streams, with the address that was dialled. One thread does all of it; the bytes themselves are the pump's.

use super::Opened;
use belljar_sys::rustix::event::{PollFd, PollFlags, poll};
use belljar_sys::rustix::fd::{AsFd, OwnedFd};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::net::{SocketFlags, accept_with, getsockname, sockopt};
use belljar_wire::message::{EgressReport, EgressSetup};
use belljar_wire::pump::{Hangup, Pump};
use belljar_wire::purpose::{FIRST_NAME, Purpose};
use names::Names;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

mod names;

/// Serves the egress sockets until the pump's connection ends. Gives the report as the host needs it: one listener for all
/// connections, one for names, and one for each route.
pub(crate) fn serve(pump: &Arc<Pump>, egress: &EgressSetup, opened: Opened) -> io::Result<EgressReport> {
    let Opened { report, mut sockets } = opened;
    let mut resolvers = sockets.split_off(usize::from(report.listeners).min(sockets.len()));
    let mut routes = resolvers.split_off(usize::from(egress.catch.is_some()).min(resolvers.len()));
    let mut listeners: Vec<Listener> =
        sockets.into_iter().map(|socket| Listener { socket, leads: Leads::ByAddress }).collect();
    for (port, count) in egress.routes.iter().zip(&report.routes) {
        let rest = routes.split_off(usize::from(*count).min(routes.len()));
        let leads = Leads::To { port: *port, has_names: egress.catch.is_some() };
        listeners.extend(routes.into_iter().map(|socket| Listener { socket, leads }));
        routes = rest;
    }
    let names = resolvers.pop().map(|socket| Names::new(UdpSocket::from(socket), pump));
    let mut relay = Relay { pump: Arc::clone(pump), listeners, names };
    thread::Builder::new().name("way-out".into()).stack_size(STACK).spawn(move || relay.run())?;
    let routes = vec![1; egress.routes.len()];
    Ok(EgressReport { listeners: u16::from(egress.catch.is_some()), routes, ..report })
}

struct Listener {
    socket: OwnedFd,
    leads: Leads,
}

/// Where connections of a listener lead.
#[derive(Clone, Copy)]
enum Leads {
    /// To whatever name has the address that was dialled.
    ByAddress,
    /// To what the host serves at this port of loopback; at other addresses, if names have any, to the name.
    To { port: u16, has_names: bool },
}

impl Listener {
    /// What a connection is for; `None` where nothing of the host's is meant.
    fn purpose(&self, connection: &OwnedFd) -> Option<Purpose> {
        let dialled = match dialled(connection).ok()? {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(_) => return self.route(),
        };
        match self.leads {
            _ if *dialled.ip() == Ipv4Addr::LOCALHOST && dialled.port() != DNS => self.route(),
            Leads::To { has_names: false, .. } => None,
            Leads::To { .. } | Leads::ByAddress => {
                (*dialled.ip() >= FIRST_NAME || dialled.port() == DNS).then(|| Purpose::caught(dialled))
            }
        }
    }

    /// What the host serves here on loopback.
    fn route(&self) -> Option<Purpose> {
        match self.leads {
            Leads::ByAddress => None,
            Leads::To { port, .. } => Some(Purpose::Route { port }),
        }
    }
}

struct Relay {
    pump: Arc<Pump>,
    listeners: Vec<Listener>,
    names: Option<Names>,
}

impl Relay {
    fn run(&mut self) {
        loop {
            let mut waiting: Vec<PollFd<'_>> =
                self.listeners.iter().map(|listener| PollFd::new(&listener.socket, PollFlags::IN)).collect();
            waiting.extend(
                self.names
                    .iter()
                    .flat_map(Names::sockets)
                    .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
            );
            match poll(&mut waiting, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => thread::sleep(RETRY_INTERVAL),
            }
            let ready: Vec<bool> = waiting.iter().map(|fd| !fd.revents().is_empty()).collect();
            let (listeners, names) = ready.split_at(self.listeners.len());
            for (listener, _) in self.listeners.iter().zip(listeners).filter(|(_, ready)| **ready) {
                accept(listener, &self.pump);
            }
            if let Some(own) = &mut self.names
                && names.contains(&true)
            {
                own.serve();
            }
        }
    }
}

fn accept(listener: &Listener, pump: &Pump) {
    match accept_with(&listener.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(connection) => {
            let _ = sockopt::set_tcp_nodelay(&connection, true);
            let opened = listener.purpose(&connection).is_some_and(|purpose| {
                pump.open(&purpose.encode(), connection.as_fd(), Hangup::Waits).is_ok()
            });
            if !opened {
                // With nothing left to linger for, closing sends a reset.
                let _ = sockopt::set_socket_linger(&connection, Some(Duration::ZERO));
            }
        }
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
        // Too many open files: some will be closed.
        Err(_) => thread::sleep(RETRY_INTERVAL),
    }
}

fn dialled(connection: &OwnedFd) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(getsockname(connection)?)
}

const DNS: u16 = 53;
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
const STACK: usize = 128 * 1024;
