//! The tree of an expression, its folding and its text as a formula of the catalogue.

use std::rc::Rc;

/// An expression. Parts of it are shared, because metrics name other metrics many times.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Number(f64),
    /// An event or a metric; once resolved, an event or quantity of the catalogue.
    Name(String),
    /// `#name`
    Literal(String),
    /// `has_event(name)`
    HasEvent(Rc<Self>),
    /// `strcmp_cpuid_str(id)`
    IsCpu(String),
    Min(Vec<Rc<Self>>),
    Max(Vec<Rc<Self>>),
    Binary(Operator, Rc<Self>, Rc<Self>),
    /// The value if the condition holds, the condition, and the value otherwise.
    If(Rc<Self>, Rc<Self>, Rc<Self>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    And,
    Or,
    Xor,
}

impl Operator {
    /// Its sign in the catalogue's formulas, and its precedence; `None` for comparisons and logic.
    fn sign(self) -> Option<(&'static str, u8)> {
        match self {
            Self::Add => Some(("+", 1)),
            Self::Subtract => Some(("-", 1)),
            Self::Multiply => Some(("*", 2)),
            Self::Divide => Some(("/", 2)),
            _ => None,
        }
    }

    fn comparison(self) -> Option<&'static str> {
        match self {
            Self::Less => Some("<"),
            Self::LessOrEqual => Some("<="),
            Self::Greater => Some(">"),
            Self::GreaterOrEqual => Some(">="),
            Self::Equal => Some("=="),
            _ => None,
        }
    }

    /// The result for constants; `None` if it is not finite, as for a division by zero.
    #[expect(
        clippy::float_cmp,
        reason = "`==` of an expression compares what was computed"
    )]
    fn apply(self, a: f64, b: f64) -> Option<f64> {
        let from_bool = |it: bool| f64::from(u8::from(it));
        let value = match self {
            Self::Add => a + b,
            Self::Subtract => a - b,
            Self::Multiply => a * b,
            Self::Divide => a / b,
            Self::Less => from_bool(a < b),
            Self::LessOrEqual => from_bool(a <= b),
            Self::Greater => from_bool(a > b),
            Self::GreaterOrEqual => from_bool(a >= b),
            Self::Equal => from_bool(a == b),
            Self::And => from_bool(a != 0.0 && b != 0.0),
            Self::Or => from_bool(a != 0.0 || b != 0.0),
            Self::Xor => from_bool((a != 0.0) != (b != 0.0)),
        };
        value.is_finite().then_some(value)
    }
}

/// The operation, computed if both operands are constants. `0 * event`, which perf adds to have the
/// event in the group, becomes 0.
pub(super) fn binary(operator: Operator, a: Rc<Node>, b: Rc<Node>) -> Rc<Node> {
    let constant = |node: &Node| match node {
        Node::Number(number) => Some(*number),
        _ => None,
    };
    match (operator, constant(&a), constant(&b)) {
        (_, Some(x), Some(y)) => {
            if let Some(value) = operator.apply(x, y) {
                return Rc::new(Node::Number(value));
            }
        }
        (Operator::Multiply, Some(0.0), None) | (Operator::Multiply, None, Some(0.0)) => {
            return Rc::new(Node::Number(0.0));
        }
        (Operator::Add, Some(0.0), None) | (Operator::Multiply, Some(1.0), None) => return b,
        (Operator::Add | Operator::Subtract, None, Some(0.0))
        | (Operator::Multiply | Operator::Divide, None, Some(1.0)) => return a,
        _ => {}
    }
    Rc::new(Node::Binary(operator, a, b))
}

/// The choice between two values; only one of them if the condition is a constant.
pub(super) fn choice(then: Rc<Node>, condition: Rc<Node>, otherwise: Rc<Node>) -> Rc<Node> {
    match &*condition {
        Node::Number(0.0) => otherwise,
        Node::Number(_) => then,
        _ => Rc::new(Node::If(then, condition, otherwise)),
    }
}

/// The text in the catalogue's formula language; `None` if it is longer than `limit` bytes.
pub(super) fn formula(node: &Node, limit: usize) -> Option<String> {
    let mut out = Text {
        text: String::new(),
        limit,
    };
    out.write_node(node, 0);
    (out.text.len() <= limit).then_some(out.text)
}

struct Text {
    text: String,
    limit: usize,
}

impl Text {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn parenthesised(&mut self, needed: bool, write: impl FnOnce(&mut Self)) {
        if needed {
            self.push("(");
        }
        write(self);
        if needed {
            self.push(")");
        }
    }

    /// Writes an expression; in parentheses if its precedence is lower than `outer`, that of the
    /// expression around it.
    fn write_node(&mut self, node: &Node, outer: u8) {
        // Shared parts are written each time they are used. Without this limit, the text could grow
        // exponentially.
        if self.text.len() > self.limit {
            return;
        }
        match node {
            Node::Number(number) if *number < 0.0 => {
                self.push(&format!("(-{:?})", -number));
            }
            Node::Number(number) if number.fract() == 0.0 && *number < 1e15 => {
                self.push(&format!("{number}"));
            }
            Node::Number(number) => self.push(&format!("{number:?}")),
            Node::Name(name) | Node::Literal(name) | Node::IsCpu(name) => self.push(name),
            Node::HasEvent(event) => self.write_node(event, outer),
            Node::Min(arguments) => self.write_call("min(", arguments),
            Node::Max(arguments) => self.write_call("max(", arguments),
            Node::Binary(operator, a, b) => match (operator, operator.sign()) {
                (_, Some((sign, own))) => self.parenthesised(own < outer, |out| {
                    out.write_node(a, own);
                    out.push(&format!(" {sign} "));
                    out.write_node(b, own + 1);
                }),
                (Operator::And, None) => self.parenthesised(2 < outer, |out| {
                    out.write_zero_or_one(a);
                    out.push(" * ");
                    out.write_zero_or_one(b);
                }),
                (Operator::Or, None) => {
                    self.push("max(");
                    self.write_zero_or_one(a);
                    self.push(", ");
                    self.write_zero_or_one(b);
                    self.push(")");
                }
                (Operator::Xor, None) => self.parenthesised(true, |out| {
                    out.push("1 if ");
                    out.write_zero_or_one(a);
                    out.push(" != ");
                    out.write_zero_or_one(b);
                    out.push(" else 0");
                }),
                (_, None) => self.write_zero_or_one(node),
            },
            Node::If(then, condition, otherwise) => self.parenthesised(outer > 0, |out| {
                out.write_node(then, 1);
                out.push(" if ");
                out.write_condition(condition);
                out.push(" else ");
                out.write_node(otherwise, 0);
            }),
        }
    }

    fn write_call(&mut self, name: &str, arguments: &[Rc<Node>]) {
        self.push(name);
        for (at, argument) in arguments.iter().enumerate() {
            if at > 0 {
                self.push(", ");
            }
            self.write_node(argument, 0);
        }
        self.push(")");
    }

    fn write_condition(&mut self, node: &Node) {
        if let Node::Binary(operator, a, b) = node
            && let Some(sign) = operator.comparison()
        {
            self.write_node(a, 1);
            self.push(&format!(" {sign} "));
            self.write_node(b, 1);
            return;
        }
        self.write_node(node, 1);
    }

    /// Writes an expression that is 1 if the condition holds, else 0.
    fn write_zero_or_one(&mut self, node: &Node) {
        self.push("(1 if ");
        self.write_condition(node);
        self.push(" else 0)");
    }
}
