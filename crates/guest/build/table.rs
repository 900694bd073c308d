//! The grammar of `confine/syscalls.table`: text in, rows out.
//!
//! Owns the names for numbers that the table may use, and which architectures there are. A row that comes
//! out names calls that exist, has a reason, and has an effect; every line that does not is reported at once.
//! Called by build.rs; what becomes of the rows is for bpf.rs.

use std::str::FromStr;

use syscalls::{aarch64, x86_64};

pub(crate) const TABLE: &str = "confine/syscalls.table";
pub(crate) const SUPERVISED: &str = "confine/landlock.table";

#[derive(Clone, Copy)]
pub(crate) enum Variant {
    Default,
    Nested,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Arch {
    X86_64,
    Aarch64,
}

impl Arch {
    pub(crate) const ALL: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];

    /// The name in cargo and in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Arch> {
        Arch::ALL.into_iter().find(|arch| arch.name() == name)
    }

    fn number_of(self, call: &str) -> Option<u32> {
        let number = match self {
            Arch::X86_64 => x86_64::Sysno::from_str(call).ok()?.id(),
            Arch::Aarch64 => aarch64::Sysno::from_str(call).ok()?.id(),
        };
        u32::try_from(number).ok()
    }
}

/// A line of the table.
pub(crate) struct Row {
    line: usize,
    pub(crate) name: String,
    numbers: Vec<(Arch, u32)>,
    pub(crate) decision: Decision,
    /// All have to hold; none means always.
    pub(crate) conditions: Vec<Condition>,
}

impl Row {
    /// The call's number, if the row is for this architecture.
    pub(crate) fn number(&self, arch: Arch) -> Option<u32> {
        self.numbers.iter().find(|(on, _)| *on == arch).map(|(_, number)| *number)
    }

    /// Whether one of two rows of a call can have no effect.
    fn collides(&self, other: &Row) -> bool {
        let always = |row: &Row| row.conditions.is_empty();
        let refused = |row: &Row| row.decision == Decision::Deny && always(row);
        self.name == other.name
            && (always(self) && always(other)
                || self.decision == other.decision && (always(self) || always(other))
                || refused(self)
                || refused(other))
    }
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Decision {
    Allow,
    Deny,
    Nested,
    /// Allowed in the default variant only.
    Plain,
}

/// A line of the table of the backend `landlock`.
pub(crate) struct SupervisedRow {
    numbers: Vec<(Arch, u32)>,
    pub(crate) answer: Answer,
    /// All have to hold; none means always.
    pub(crate) conditions: Vec<Condition>,
}

impl SupervisedRow {
    /// The call's number, if the row is for this architecture.
    pub(crate) fn number(&self, arch: Arch) -> Option<u32> {
        self.numbers.iter().find(|(on, _)| *on == arch).map(|(_, number)| *number)
    }
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Answer {
    Ask,
    /// Asked for where Landlock has no scope for signals.
    Signal,
    Open,
    /// 0: the caller is told that it was done.
    Error(u32),
}

/// A comparison of an argument's lower 32 bits, or of a whole pointer.
pub(crate) struct Condition {
    pub(crate) arg: u8,
    pub(crate) operator: Operator,
    pub(crate) value: u32,
}

#[derive(Clone, Copy)]
pub(crate) enum Operator {
    Equal,
    NotEqual,
    MaskedEqual(u32),
    /// A pointer to nothing: all 64 bits.
    Null,
}

pub(crate) fn parse(text: &str) -> Result<Vec<Row>, Vec<String>> {
    let mut rows: Vec<Row> = Vec::new();
    let mut problems = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        match parse_row(line, content) {
            Ok(row) => match rows.iter().find(|earlier| earlier.collides(&row)) {
                Some(earlier) => problems.push(format!(
                    "{TABLE}:{line}: `{}` is already decided by line {}",
                    row.name, earlier.line
                )),
                None => rows.push(row),
            },
            Err(problem) => problems.push(format!("{TABLE}:{line}: {problem}")),
        }
    }
    if problems.is_empty() { Ok(rows) } else { Err(problems) }
}

pub(crate) fn parse_supervised(text: &str) -> Result<Vec<SupervisedRow>, Vec<String>> {
    let mut rows = Vec::new();
    let mut problems = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        // A row about the window is one about each of its parts.
        let parts: &[&str] = if content.contains(IN_WINDOW) { &["WINDOW", "SPARE_WINDOW"] } else { &[""] };
        let parsed = parts.iter().map(|part| {
            let mask = if *part == "WINDOW" { WINDOW_SIZE } else { SPARE_WINDOW_SIZE } - 1;
            parse_supervised_row(&content.replace(IN_WINDOW, &format!("arg0 & {:#x} == {part}", !mask)))
        });
        match parsed.collect::<Result<Vec<_>, _>>() {
            Ok(parsed) => rows.extend(parsed),
            Err(problem) => problems.push(format!("{SUPERVISED}:{line}: {problem}")),
        }
    }
    if problems.is_empty() { Ok(rows) } else { Err(problems) }
}

fn parse_supervised_row(content: &str) -> Result<SupervisedRow, String> {
    let Columns { numbers, word, conditions, .. } = parse_columns(content)?;
    let answer = match word {
        "ask" => Answer::Ask,
        "signal" => Answer::Signal,
        "open" => Answer::Open,
        "zero" => Answer::Error(0),
        name => match ERRORS.iter().find(|(known, _)| *known == name) {
            Some((_, errno)) => Answer::Error(*errno),
            None => {
                return Err(format!(
                    "`{name}` is none of `ask`, `signal`, `open`, `zero`, nor an error of build/table.rs"
                ));
            }
        },
    };
    Ok(SupervisedRow { numbers, answer, conditions })
}

fn parse_row(line: usize, content: &str) -> Result<Row, String> {
    let Columns { name, numbers, word, conditions } = parse_columns(content)?;
    let decision = match word {
        "allow" => Decision::Allow,
        "deny" => Decision::Deny,
        "nested" => Decision::Nested,
        "plain" => Decision::Plain,
        decision => return Err(format!("`{decision}` is none of `allow`, `deny`, `nested`, `plain`")),
    };
    Ok(Row { line, name: name.to_owned(), numbers, decision, conditions })
}

/// What the lines of both tables have in common.
struct Columns<'l> {
    name: &'l str,
    numbers: Vec<(Arch, u32)>,
    word: &'l str,
    conditions: Vec<Condition>,
}

fn parse_columns(content: &str) -> Result<Columns<'_>, String> {
    let columns: Vec<&str> = content.split('|').map(str::trim).collect();
    let &[call, word, condition, reason] = columns.as_slice() else {
        let count = columns.len();
        return Err(format!("expected `name | decision | condition | reason`, found {count} columns"));
    };
    if reason.is_empty() {
        return Err(format!("`{call}` has no reason"));
    }

    let (name, arches) = match call.split_once('@') {
        None => (call, Arch::ALL.to_vec()),
        Some((name, arch)) => {
            (name, vec![Arch::named(arch).ok_or_else(|| format!("unknown architecture in `{call}`"))?])
        }
    };
    // Looked up for every architecture, so that building on one finds what is wrong on the other.
    let number = |arch: Arch| {
        let number = arch.number_of(name).ok_or_else(|| format!("no call `{name}` on {}", arch.name()))?;
        Ok((arch, number))
    };
    let numbers = arches.into_iter().map(number).collect::<Result<_, String>>()?;

    let conditions = match condition {
        "" => Vec::new(),
        _ => condition.split(" and ").map(parse_condition).collect::<Result<_, _>>()?,
    };
    Ok(Columns { name, numbers, word, conditions })
}

/// `argN == V`, `argN != V`, `argN & MASK == V` or `argN is null`.
fn parse_condition(text: &str) -> Result<Condition, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (arg, operator, value) = match words.as_slice() {
        [arg, "==", value] => (arg, Operator::Equal, value),
        [arg, "!=", value] => (arg, Operator::NotEqual, value),
        [arg, "is", "null"] => (arg, Operator::Null, &"0"),
        [arg, "&", mask, "==", value] => (arg, Operator::MaskedEqual(parse_number(mask)?), value),
        _ => return Err(format!("cannot read condition `{}`", text.trim())),
    };
    let value = parse_number(value)?;
    if let Operator::MaskedEqual(mask) = operator
        && value & !mask != 0
    {
        return Err(format!("`{}` never holds: the value has bits outside the mask", text.trim()));
    }
    let arg = match arg.strip_prefix("arg").map(str::parse) {
        Some(Ok(index @ 0..=5)) => index,
        _ => return Err(format!("`{arg}` is none of `arg0` to `arg5`")),
    };
    Ok(Condition { arg, operator, value })
}

fn parse_number(text: &str) -> Result<u32, String> {
    if let Some((_, value)) = NAMES.iter().find(|(name, _)| *name == text) {
        return Ok(*value);
    }
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("`{text}` is neither a 32-bit number nor a name from build/table.rs"))
}

/// The numbers of descriptors that stand for UDP. The supervisor knows them too (`belljar_wire::message::WINDOWS`).
const WINDOW: u32 = 960;
const WINDOW_SIZE: u32 = 64;
/// For programs with many: above what select(2) can wait for.
const SPARE_WINDOW: u32 = 3584;
const SPARE_WINDOW_SIZE: u32 = 512;
const IN_WINDOW: &str = "arg0 in window";

/// Errors that calls are answered with: asm-generic/errno-base.h and errno.h, the same on both architectures.
const ERRORS: &[(&str, u32)] = &[
    ("EPERM", 1),
    ("ENOTTY", 25),
    ("ENOSYS", 38),
    ("ENOPROTOOPT", 92),
    ("EPROTONOSUPPORT", 93),
    ("EOPNOTSUPP", 95),
    ("EAFNOSUPPORT", 97),
];

/// Names the table may use for numbers, all the same on both architectures.
const NAMES: &[(&str, u32)] = &[
    ("WINDOW", WINDOW),
    ("SPARE_WINDOW", SPARE_WINDOW),
    // linux/sched.h
    ("CLONE_NEWTIME", 0x0000_0080),
    ("CLONE_NEWNS", 0x0002_0000),
    ("CLONE_NEWCGROUP", 0x0200_0000),
    ("CLONE_NEWUTS", 0x0400_0000),
    ("CLONE_NEWIPC", 0x0800_0000),
    ("CLONE_NEWUSER", 0x1000_0000),
    ("CLONE_NEWPID", 0x2000_0000),
    ("CLONE_NEWNET", 0x4000_0000),
    // linux/socket.h, linux/net.h
    ("AF_UNIX", 1),
    ("AF_INET", 2),
    ("AF_INET6", 10),
    ("AF_NETLINK", 16),
    ("SOCK_DCCP", 6),
    ("SOCK_PACKET", 10),
    ("SOL_IP", 0),
    ("SOL_SOCKET", 1),
    ("SOL_TCP", 6),
    ("SOL_IPV6", 41),
    // linux/in.h, linux/in6.h, linux/netlink.h
    ("IPPROTO_ICMP", 1),
    ("IPPROTO_TCP", 6),
    ("IPPROTO_UDP", 17),
    ("IPPROTO_ICMPV6", 58),
    ("NETLINK_ROUTE", 0),
    // asm-generic/ioctls.h
    ("TIOCSTI", 0x5412),
    ("TIOCLINUX", 0x541c),
    // linux/resource.h, linux/ioprio.h, linux/ptrace.h
    ("PRIO_USER", 2),
    ("IOPRIO_WHO_USER", 3),
    ("PTRACE_TRACEME", 0),
];
