//! Rows of the table as one program in classic BPF, the language of seccomp filters.
//!
//! The program checks the architecture, then searches the call's number in a balanced tree of ranges that
//! have the same answer. The kernel runs a new filter for every number there is, to remember which calls
//! are always allowed: with a tree that takes microseconds, with a test per call a millisecond.
//!
//! Called by build.rs; knows neither files nor text. The instructions are in linux/bpf_common.h and
//! linux/filter.h, what they read and answer in linux/seccomp.h.

use std::collections::BTreeMap;

use crate::table::{Answer, Arch, Condition, Decision, Operator, Row, SupervisedRow, Variant};

/// BPF_MAXINSNS.
pub(crate) const MAX_INSTRUCTIONS: usize = 4096;

/// `struct sock_filter`.
pub(crate) struct Instruction {
    code: u16,
    /// How many instructions to leave out if a test holds, and if it does not.
    jt: u8,
    jf: u8,
    k: u32,
}

impl Instruction {
    /// As the kernel reads it. Both architectures are little-endian, whatever the machine that builds.
    pub(crate) fn to_bytes(&self) -> [u8; 8] {
        let ([c0, c1], [k0, k1, k2, k3]) = (self.code.to_le_bytes(), self.k.to_le_bytes());
        [c0, c1, self.jt, self.jf, k0, k1, k2, k3]
    }
}

pub(crate) fn filter(rows: &[Row], arch: Arch, variant: Variant) -> Vec<Instruction> {
    let mut program = Program::new(&[]);
    let mut calls: BTreeMap<u32, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        if let Some(number) = row.number(arch) {
            calls.entry(number).or_default().push(row);
        }
    }
    let calls: BTreeMap<u32, ProgramOffset> =
        calls.into_iter().map(|(number, rows)| (number, program.call(&rows, variant))).collect();
    let unknown = program.unknown;
    program.finish(&calls, unknown, arch)
}

/// The filter that is asked beside the other one: it answers for the calls in its table, and allows what has no row.
pub(crate) fn supervised(rows: &[SupervisedRow], arch: Arch, signals: Signals) -> Vec<Instruction> {
    let answer = |row: &SupervisedRow| match (row.answer, signals) {
        (Answer::Ask, _) | (Answer::Signal, Signals::Notified) => SECCOMP_RET_USER_NOTIF,
        (Answer::Open, _) | (Answer::Signal, Signals::Scoped) => SECCOMP_RET_ALLOW,
        (Answer::Error(errno), _) => SECCOMP_RET_ERRNO | errno,
    };
    let answers: Vec<u32> = rows.iter().map(answer).collect();
    let mut program = Program::new(&answers);
    let mut calls: BTreeMap<u32, Vec<&SupervisedRow>> = BTreeMap::new();
    for row in rows {
        if let Some(number) = row.number(arch) {
            calls.entry(number).or_default().push(row);
        }
    }
    let calls: BTreeMap<u32, ProgramOffset> = calls
        .into_iter()
        .map(|(number, rows)| {
            // The first row that holds answers.
            let place = rows.iter().rev().fold(program.allowed, |next, row| {
                let end = program.ends[&answer(row)];
                program.all(&row.conditions, end, next)
            });
            (number, place)
        })
        .collect();
    let allowed = program.allowed;
    program.finish(&calls, allowed, arch)
}

/// Whether the supervisor is asked for signals.
#[derive(Clone, Copy)]
pub(crate) enum Signals {
    Notified,
    /// Landlock holds them.
    Scoped,
}

impl Program {
    fn finish(
        mut self,
        calls: &BTreeMap<u32, ProgramOffset>,
        other: ProgramOffset,
        arch: Arch,
    ) -> Vec<Instruction> {
        let ranges = ranges(calls, other);
        let tree = self.search(&ranges);
        let number = self.step(LOAD, NUMBER, tree);

        let audit_arch = match arch {
            Arch::X86_64 => AUDIT_ARCH_X86_64,
            Arch::Aarch64 => AUDIT_ARCH_AARCH64,
        };
        // The numbers of 32-bit calls have another meaning: they are answered without being looked at.
        let test = self.test(EQUAL, audit_arch, number, self.unknown);
        self.step(LOAD, ARCH, test);

        self.reversed.reverse();
        self.reversed
    }
}

/// Where to go from each number on, up to the next one in the list. The last range has no end, and so
/// contains the x32 calls: these are x86_64's by architecture, with bit 30 set in the number.
fn ranges(calls: &BTreeMap<u32, ProgramOffset>, other: ProgramOffset) -> Vec<(u32, ProgramOffset)> {
    let end = calls.last_key_value().map_or(0, |(last, _)| last + 1);
    let mut ranges: Vec<(u32, ProgramOffset)> =
        (0..=end).map(|number| (number, calls.get(&number).copied().unwrap_or(other))).collect();
    ranges.dedup_by_key(|(_, place)| *place);
    ranges
}

/// A program that is written from its end to its beginning. BPF only jumps forwards, so whatever an
/// instruction leads to has its place already.
struct Program {
    reversed: Vec<Instruction>,
    // The three ways it can end that every filter has.
    allowed: ProgramOffset,
    refused: ProgramOffset,
    unknown: ProgramOffset,
    /// Every way by its answer.
    ends: BTreeMap<u32, ProgramOffset>,
}

/// A place in the program: the number of instructions from there to the end.
#[derive(Clone, Copy, PartialEq, Debug)]
struct ProgramOffset(usize);

impl Program {
    /// With these answers beside the usual three.
    fn new(more: &[u32]) -> Program {
        let usual = [SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_ERRNO | ENOSYS];
        let mut reversed = Vec::new();
        let mut ends = BTreeMap::new();
        for value in usual.iter().chain(more) {
            ends.entry(*value).or_insert_with(|| {
                reversed.push(Instruction { code: RETURN, jt: 0, jf: 0, k: *value });
                ProgramOffset(reversed.len())
            });
        }
        let [allowed, refused, unknown] = usual.map(|value| ends[&value]);
        Program { reversed, allowed, refused, unknown, ends }
    }

    fn search(&mut self, ranges: &[(u32, ProgramOffset)]) -> ProgramOffset {
        if let [(_, place)] = ranges {
            return *place;
        }
        let (low, high) = ranges.split_at(ranges.len() / 2);
        let (greater_or_equal, less) = (self.search(high), self.search(low));
        self.test(GREATER_OR_EQUAL, high[0].0, greater_or_equal, less)
    }

    /// Answers one call: what is refused comes first, and what no row allows is refused as well.
    fn call(&mut self, rows: &[&Row], variant: Variant) -> ProgramOffset {
        let (allow, refuse): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| match row.decision {
            Decision::Allow => true,
            Decision::Deny => false,
            Decision::Nested => matches!(variant, Variant::Nested),
            Decision::Plain => matches!(variant, Variant::Default),
        });
        let not_refused = self.any(&allow, self.allowed, self.refused);
        self.any(&refuse, self.refused, not_refused)
    }

    fn any(&mut self, rows: &[&Row], yes: ProgramOffset, no: ProgramOffset) -> ProgramOffset {
        if rows.iter().any(|row| row.conditions.is_empty()) {
            return yes;
        }
        rows.iter().rev().fold(no, |no, row| self.all(&row.conditions, yes, no))
    }

    fn all(&mut self, conditions: &[Condition], yes: ProgramOffset, no: ProgramOffset) -> ProgramOffset {
        conditions.iter().rev().fold(yes, |yes, condition| {
            let (value, argument) = (condition.value, ARGUMENTS + 8 * u32::from(condition.arg));
            let compare = match condition.operator {
                Operator::Equal => self.test(EQUAL, value, yes, no),
                Operator::NotEqual => self.test(EQUAL, value, no, yes),
                Operator::MaskedEqual(mask) => {
                    let test = self.test(EQUAL, value, yes, no);
                    self.step(AND, mask, test)
                }
                Operator::Null => {
                    let lower = self.test(EQUAL, 0, yes, no);
                    let lower = self.step(LOAD, argument, lower);
                    let upper = self.test(EQUAL, 0, lower, no);
                    return self.step(LOAD, argument + 4, upper);
                }
            };
            self.step(LOAD, argument, compare)
        })
    }

    /// Adds a comparison of what was loaded last with `value`.
    fn test(&mut self, code: u16, value: u32, yes: ProgramOffset, no: ProgramOffset) -> ProgramOffset {
        let (yes, no) = (self.near(yes), self.near(no));
        let [jt, jf] = [yes, no].map(|place| {
            u8::try_from(self.distance(place)).expect("what was near still is, one jump further on")
        });
        self.add(Instruction { code, jt, jf, k: value })
    }

    /// Adds an instruction that always continues at `next`.
    fn step(&mut self, code: u16, k: u32, next: ProgramOffset) -> ProgramOffset {
        if self.distance(next) > 0 {
            self.jump(next);
        }
        self.add(Instruction { code, jt: 0, jf: 0, k })
    }

    /// A place that leads to the given one and is near enough for a test.
    fn near(&mut self, place: ProgramOffset) -> ProgramOffset {
        if self.distance(place) <= NEAR { place } else { self.jump(place) }
    }

    fn jump(&mut self, to: ProgramOffset) -> ProgramOffset {
        let k = u32::try_from(self.distance(to)).expect("a program has less than 2^32 instructions");
        self.add(Instruction { code: JUMP, jt: 0, jf: 0, k })
    }

    /// How many instructions the one added next would leave out to get to a place.
    fn distance(&self, place: ProgramOffset) -> usize {
        self.reversed.len() - place.0
    }

    fn add(&mut self, instruction: Instruction) -> ProgramOffset {
        self.reversed.push(instruction);
        ProgramOffset(self.reversed.len())
    }
}

/// A test has 8 bits for a distance; one instruction is spared for the jump its other branch may need.
const NEAR: usize = 254;

// BPF_LD | BPF_W | BPF_ABS and so on; all 32 bits wide.
const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const EQUAL: u16 = 0x15;
const GREATER_OR_EQUAL: u16 = 0x35;
const RETURN: u16 = 0x06;

// Offsets in `struct seccomp_data`. Arguments have 64 bits, and on little-endian machines the lower half
// is where the argument begins.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

const SECCOMP_RET_ALLOW: u32 = 0x7fff_0000;
const SECCOMP_RET_ERRNO: u32 = 0x0005_0000;
const SECCOMP_RET_USER_NOTIF: u32 = 0x7fc0_0000;

// asm-generic/errno-base.h and errno.h, the same on both architectures.
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

// linux/audit.h: ELF machine, 64-bit, little-endian.
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const AUDIT_ARCH_AARCH64: u32 = 0xc000_00b7;
