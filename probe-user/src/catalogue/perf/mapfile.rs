//! mapfile.csv: which files describe which CPU. A row begins with a regular expression of perf's
//! name for an x86 CPU (`GenuineIntel-6-8F-8`), or with `MIDR_EL1` of an Arm core.

use std::collections::BTreeSet;

use super::processor::Processor;

/// Maximum length of a row's expression.
const MAX_LENGTH: usize = 256;

/// The files or directories that the rows of this CPU name, each once.
pub(super) fn paths(text: &str, processor: &Processor) -> Vec<String> {
    let mut paths = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut fields = line.split(',');
        let (Some(cpu), Some(path)) = (fields.next(), fields.nth(1)) else {
            continue;
        };
        let path = path.trim().trim_start_matches('/').to_owned();
        let safe = !path.is_empty() && path.split('/').all(|part| part != "..");
        if safe && !paths.contains(&path) && is_of(cpu.trim(), processor) {
            paths.push(path);
        }
    }
    paths
}

fn is_of(cpu: &str, processor: &Processor) -> bool {
    match cpu.strip_prefix("0x") {
        Some(midr) => u64::from_str_radix(midr, 16).is_ok_and(|midr| processor.is_part(midr)),
        None => processor.names().iter().any(|name| matches(cpu, name)),
    }
}

/// Maximum nesting of groups: repeated groups in each other would take exponential time.
const MAX_DEPTH: usize = 3;

/// Whether the whole name matches the expression. An expression that is not understood matches
/// nothing.
pub(super) fn matches(expression: &str, name: &str) -> bool {
    if expression.len() > MAX_LENGTH {
        return false;
    }
    let pattern: Vec<char> = expression.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let mut parser = Matcher {
        pattern: &pattern,
        at: 0,
        depth: 0,
        name: &name,
    };
    let ends = parser.alternatives(&BTreeSet::from([0]));
    parser.at == pattern.len() && ends.contains(&name.len())
}

/// Walks the expression once, with the set of all places of the name that it may have reached.
struct Matcher<'a> {
    pattern: &'a [char],
    at: usize,
    depth: usize,
    name: &'a [char],
}

type Places = BTreeSet<usize>;

impl Matcher<'_> {
    fn peek(&self) -> Option<char> {
        self.pattern.get(self.at).copied()
    }

    fn take(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        self.at += usize::from(found);
        found
    }

    fn alternatives(&mut self, from: &Places) -> Places {
        let mut ends = self.sequence(from);
        while self.take('|') {
            ends.extend(self.sequence(from));
        }
        ends
    }

    fn sequence(&mut self, from: &Places) -> Places {
        let mut places = from.clone();
        while let Some(c) = self.peek().filter(|c| !matches!(c, '|' | ')')) {
            let begin = self.at;
            let mut next = self.atom(c, &places);
            match self.peek() {
                Some('?') => {
                    self.at += 1;
                    next.extend(&places);
                }
                Some(sign @ ('+' | '*')) => {
                    // Again from each new place, until none is new.
                    let behind = self.at + 1;
                    let mut new = next.clone();
                    while !new.is_empty() {
                        self.at = begin;
                        let reached = self.atom(c, &new);
                        new = reached.difference(&next).copied().collect();
                        next.extend(&new);
                    }
                    self.at = behind;
                    if sign == '*' {
                        next.extend(&places);
                    }
                }
                _ => {}
            }
            places = next;
        }
        places
    }

    fn atom(&mut self, c: char, from: &Places) -> Places {
        self.at += 1;
        match c {
            '(' if self.depth == MAX_DEPTH => Places::new(),
            '(' => {
                self.depth += 1;
                let ends = self.alternatives(from);
                self.depth -= 1;
                match self.take(')') {
                    true => ends,
                    false => Places::new(),
                }
            }
            '[' => {
                let Some((class, behind)) = self.class() else {
                    return Places::new();
                };
                self.at = behind;
                self.step(from, |c| class.iter().any(|(a, b)| (*a..=*b).contains(&c)))
            }
            '.' => self.step(from, |_| true),
            '\\' => {
                let literal = self.peek();
                self.at += 1;
                self.step(from, |c| Some(c) == literal)
            }
            literal => self.step(from, |c| c == literal),
        }
    }

    fn step(&self, from: &Places, fits: impl Fn(char) -> bool) -> Places {
        let fits = |at: &&usize| self.name.get(**at).is_some_and(|c| fits(*c));
        from.iter().filter(fits).map(|at| at + 1).collect()
    }

    /// The ranges of the class that begins here, and the place behind it.
    fn class(&self) -> Option<(Vec<(char, char)>, usize)> {
        let mut ranges = Vec::new();
        let mut at = self.at;
        loop {
            let c = *self.pattern.get(at)?;
            let rest = &self.pattern[at..];
            if c == ']' && at > self.at {
                return Some((ranges, at + 1));
            }
            let xdigit: Vec<char> = "[:xdigit:]".chars().collect();
            if rest.starts_with(&xdigit) {
                ranges.extend([('0', '9'), ('a', 'f'), ('A', 'F')]);
                at += xdigit.len();
            } else if let [_, '-', last, ..] = rest
                && *last != ']'
            {
                ranges.push((c, *last));
                at += 3;
            } else {
                ranges.push((c, c));
                at += 1;
            }
        }
    }
}
