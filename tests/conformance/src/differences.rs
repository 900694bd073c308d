//! What backends do differently, each as a question with a name: a test says which of them it depends on, and asserts what is left
//! where the answer is no. docs/gvisor.md describes the same for users.

use belljar_spec::egress::Reason;
use belljar_spec::{BackendName, Runtime};

/// Whether whatever is dialled arrives at the gateway: every address, every port. gVisor has no nf_tables: its own kernel
/// refuses all but the ports that rules name.
pub fn has_netfilter(backend: BackendName) -> bool {
    !is_gvisor(backend)
}

/// Whether a refusal for this reason is the gateway's, and so recorded; otherwise the sandbox's own kernel refuses it unheard.
pub fn is_recorded(backend: BackendName, reason: Reason) -> bool {
    has_netfilter(backend) || !matches!(reason, Reason::DirectAddress | Reason::PortNotAllowed)
}

/// Whether `/etc` is the sandbox's own, and with it what is said of names, networks and authorities there. Without mounts it is the
/// host's.
pub fn has_own_etc(backend: BackendName) -> bool {
    !matches!(backend, BackendName::Landlock)
}

/// Where belljar's own files are, as a word of the shell.
pub fn own_files(backend: BackendName) -> &'static str {
    if has_own_etc(backend) { "/etc/belljar" } else { r#""$(dirname "$GIT_CONFIG_SYSTEM")""# }
}

/// Whether a sandbox has a loopback device and interfaces of its own: servers are at the address that they ask for, datagrams reach own
/// sockets, and no interface of the host is listed. Without a network namespace a server is at the sandbox's own address.
pub fn has_own_network(backend: BackendName) -> bool {
    backend != BackendName::Landlock
}

/// Whether paths inside of a writable folder can be protected. Landlock cannot take back what it gave for the folder.
pub fn protects_paths(backend: BackendName) -> bool {
    backend != BackendName::Landlock
}

/// Whether a folder of the host can be the workspace, and other paths of the host be shared. A sandbox elsewhere has none of them.
pub fn shares_folders(backend: BackendName) -> bool {
    backend != BackendName::E2b
}

/// What the user is called that commands run as. A service's templates have their own.
pub fn user_inside(backend: BackendName) -> &'static str {
    if backend == BackendName::E2b { "user" } else { "agent" }
}

/// Whether a sandbox has a workspace and ports without the host's.
pub fn isolates(backend: BackendName) -> bool {
    backend.assurance().isolates()
}

/// Whether names have addresses of IPv6. In gVisor no address of it is local but `::1`; landlock has the loopback of the host, and
/// tells the gateway of no other.
pub fn has_ipv6(backend: BackendName) -> bool {
    !is_gvisor(backend) && backend != BackendName::Landlock
}

/// What addresses of names begin with. In gVisor, and in the network that landlock shares with the host, only those of the loopback
/// device are local.
pub fn names_begin_with(backend: BackendName) -> &'static str {
    if is_gvisor(backend) || backend == BackendName::Landlock { "127.128." } else { "198.18." }
}

/// Whether a limit on memory or processes takes nothing but what ran into it. In gVisor it may take the kernel, and with it the
/// sandbox.
pub fn outlives_its_limits(backend: BackendName) -> bool {
    !is_gvisor(backend)
}

/// Whether a terminal makes signals of keys, an end of Ctrl-D, and is `/dev/tty`. gVisor's passes all keys on as bytes.
pub fn has_terminal_keys(backend: BackendName) -> bool {
    !is_gvisor(backend)
}

/// Whether the host's changes of shared folders are told inside. gVisor sees them when it looks.
pub fn sees_host_changes(backend: BackendName) -> bool {
    !is_gvisor(backend)
}

/// Whether each mount is one inside too. gVisor's file server shows those within another as plain folders of it.
pub fn lists_every_mount(backend: BackendName) -> bool {
    !is_gvisor(backend)
}

/// Whether no process inside can signal process 1. In gVisor it has the same user as commands, and no other protection.
pub fn guards_process_one(backend: BackendName) -> bool {
    !is_gvisor(backend)
}

/// Whether an echo request to an address of the sandbox's own is answered, by its own kernel: gVisor asks for no privilege.
pub fn answers_its_own_pings(backend: BackendName) -> bool {
    is_gvisor(backend)
}

/// Whether a kernel with Landlock 9 keeps sockets away that appear in shared folders after the start. gVisor has no Landlock.
pub fn hides_late_sockets(backend: BackendName) -> bool {
    !is_gvisor(backend)
}

/// Whether `/proc/PID/status` has every line that Linux has. gVisor's has no `CapAmb` (it knows no ambient capabilities) and no
/// `NoNewPrivs`.
pub fn tells_all_of_a_process(backend: BackendName) -> bool {
    !is_gvisor(backend)
}

/// Whether int 0x80 means the calls of 32-bit programs, which no filter allows. To gVisor it is `syscall` by another name.
pub fn knows_32_bit_calls(backend: BackendName) -> bool {
    !is_gvisor(backend)
}

/// What is in `/dev` beside the usual, and leads to nothing of the host's: gVisor has a FUSE and a tunnel of its own.
pub fn devices_of_its_own(backend: BackendName) -> &'static [&'static str] {
    if is_gvisor(backend) { &["fuse", "net"] } else { &[] }
}

/// Whether two files can change places in one call. gVisor knows no RENAME_EXCHANGE.
pub fn can_exchange(backend: BackendName) -> bool {
    !is_gvisor(backend)
}

/// Whether statvfs(3) says of a mount that it is read-only.
pub fn tells_of_read_only(backend: BackendName) -> bool {
    !is_gvisor(backend)
}

/// Whether a port below 1024 takes a privilege. In gVisor only the sandbox itself uses any of its ports.
pub fn guards_low_ports(backend: BackendName) -> bool {
    !is_gvisor(backend)
}

/// Options of sockets that take a privilege elsewhere, and that gVisor accepts without a meaning: it has no marks, no transparent
/// sockets, no filters of packets, and no protocols above TCP.
pub fn options_without_meaning(backend: BackendName) -> &'static [&'static str] {
    let all = &[
        "SO_MARK",
        "SO_MARK of datagrams",
        "IP_TRANSPARENT",
        "SO_PRIORITY",
        "SO_ATTACH_BPF",
        "TCP_REPAIR",
        "ULP",
    ];
    if is_gvisor(backend) { all } else { &[] }
}

/// Whether processes that wake each other all the time are stopped by a pause. In gVisor they may be faster than who stops them,
/// and the pause is refused.
pub fn stops_the_restless(backend: BackendName) -> bool {
    !is_gvisor(backend)
}

/// Whether the session of a command is led by its supervisor: gVisor could hang up on it otherwise.
pub fn supervisor_leads_session(backend: BackendName) -> bool {
    is_gvisor(backend)
}

/// Whether a process is seen from outside that lives for a moment. A look into gVisor takes longer than that.
pub fn sees_short_lives(backend: BackendName) -> bool {
    !is_gvisor(backend)
}

/// Whether a command waits while no process takes what it writes. A service keeps the output for readers that come later.
pub fn waits_for_readers(backend: BackendName) -> bool {
    backend != BackendName::E2b
}

/// What a call to the kernel costs, in calls to the host's: floods are that much smaller.
pub fn call_costs(backend: BackendName) -> u32 {
    if is_gvisor(backend) { 10 } else { 1 }
}

/// Whether the kernel that everything inside asks is gVisor's.
fn is_gvisor(backend: BackendName) -> bool {
    backend == BackendName::Docker(Runtime::Runsc)
}
