//! A task's durable host calls, in order, and the check that a replay makes them again.
//!
//! Pure: the sandbox asks [`Journal::next`] at every call, the engine reads what is new and makes it
//! durable before anything depends on it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ids::Timestamp;
use super::interrupt::{InterruptKind, Question};
use super::json::Json;

/// What a node asked of the host. Equality is byte for byte, since all text in it is canonical. (The store
/// reads it back by hand: a tag and text that passes through unread do not go together in serde.)
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "call", rename_all = "kebab-case")]
pub enum Call {
    Interrupt {
        question: Question,
    },
    InterruptAll {
        questions: Vec<Question>,
    },
    /// `name` is the node's own name for the effect.
    Effect {
        name: String,
        key: String,
        input: Json,
    },
    Steering,
    /// No call: another attempt begins here, after one that failed. It gives the guest's clock a time.
    Attempt,
}

impl Call {
    /// The questions it asks, in order.
    pub fn questions(&self) -> &[Question] {
        match self {
            Self::Interrupt { question } => std::slice::from_ref(question),
            Self::InterruptAll { questions } => questions,
            Self::Effect { .. } | Self::Steering | Self::Attempt => &[],
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Interrupt { .. } => "interrupt",
            Self::InterruptAll { .. } => "interrupt-all",
            Self::Effect { .. } => "effect",
            Self::Steering => "steering",
            Self::Attempt => "attempt",
        }
    }
}

/// What the host has to say to a call, so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// One place a question, filled as answers come.
    Answers(Vec<Option<Json>>),
    Effect(EffectReply),
    Steering(Vec<Instruction>),
    /// To [`Call::Attempt`].
    Attempt,
}

/// How far an effect got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EffectReply {
    /// Asked for; whether it was sent is for the effect's own record to say.
    Begun,
    /// The host asks a person about it first. The answer is what the person said.
    Asked {
        kind: InterruptKind,
        answer: Option<Json>,
    },
    Known(EffectOutcome),
    /// It failed, and another attempt may send it again; what the guest saw.
    Retryable(EffectOutcome),
}

/// How an effect ended, as the guest sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EffectOutcome {
    Done(Json),
    Denied(String),
    Invalid(String),
    KeyConflict,
    Failed(Json),
    InDoubt(String),
}

/// What a person added beside an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instruction {
    pub actor: String,
    pub text: String,
}

/// Of an entry itself, whatever it says.
const ENTRY_BYTES: u64 = 64;

impl Call {
    /// What it takes to keep it.
    pub fn bytes(&self) -> u64 {
        let of = |json: &Json| json.as_str().len() as u64;
        let optional = |json: &Option<Json>| json.as_ref().map_or(0, of);
        let question = |question: &Question| {
            of(&question.payload) + optional(&question.answer_schema) + optional(&question.default_answer)
        };
        ENTRY_BYTES
            + match self {
                Self::Interrupt { .. } | Self::InterruptAll { .. } => {
                    self.questions().iter().map(|asked| ENTRY_BYTES + question(asked)).sum()
                }
                Self::Effect { name, key, input } => name.len() as u64 + key.len() as u64 + of(input),
                Self::Steering | Self::Attempt => 0,
            }
    }
}

impl Reply {
    /// What it takes to keep it.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Answers(answers) => {
                answers.iter().flatten().map(|answer| answer.as_str().len() as u64).sum()
            }
            Self::Effect(EffectReply::Known(outcome) | EffectReply::Retryable(outcome)) => match outcome {
                EffectOutcome::Done(value) | EffectOutcome::Failed(value) => value.as_str().len() as u64,
                EffectOutcome::Denied(why) | EffectOutcome::Invalid(why) | EffectOutcome::InDoubt(why) => {
                    why.len() as u64
                }
                EffectOutcome::KeyConflict => 0,
            },
            Self::Effect(EffectReply::Begun | EffectReply::Asked { .. }) | Self::Attempt => 0,
            Self::Steering(instructions) => instructions
                .iter()
                .map(|said| (said.actor.len() + said.text.len()) as u64 + ENTRY_BYTES)
                .sum(),
        }
    }
}

/// One host call on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub call: Call,
    pub reply: Reply,
    /// When the reply was known: the guest's clock goes on from here.
    pub at: Timestamp,
}

impl Entry {
    /// Whether a replay can go past it.
    pub fn is_settled(&self) -> bool {
        match &self.reply {
            Reply::Answers(answers) => answers.iter().all(Option::is_some),
            Reply::Effect(EffectReply::Known(_) | EffectReply::Retryable(_)) => true,
            Reply::Steering(_) | Reply::Attempt => true,
            Reply::Effect(EffectReply::Begun | EffectReply::Asked { .. }) => false,
        }
    }

    /// Whether running the task again gets further than this entry: all that a person was asked is
    /// answered.
    pub fn is_answered(&self) -> bool {
        match &self.reply {
            Reply::Answers(answers) => answers.iter().all(Option::is_some),
            Reply::Effect(EffectReply::Asked { answer, .. }) => answer.is_some(),
            Reply::Effect(_) | Reply::Steering(_) | Reply::Attempt => true,
        }
    }
}

/// A task's journal with a place in it. Only the last call can be unsettled; where another attempt begins may follow
/// it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    entries: Vec<Entry>,
    cursor: usize,
    /// Entries before this one are durable, as they stand.
    durable: usize,
    /// Grows when the journal is cut, so that what is asked anew has new ids.
    generation: u32,
}

/// What [`Journal::next`] says of a call.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// It was made before, at `index`; go on with what is known of it.
    Recorded {
        index: usize,
        reply: Reply,
        at: Timestamp,
    },
    /// It is new, and would be entry `index`.
    Fresh {
        index: usize,
    },
    Diverged(Box<Divergence>),
}

/// A replay that does not do again what was done before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    pub index: usize,
    pub expected: Call,
    /// `None`: the node finished without making this call.
    pub actual: Option<Call>,
    /// What was called from `index` on when the node first ran, and not read now.
    pub unread: Vec<Call>,
}

/// So many unread entries are listed; how many there are is said.
const UNREAD_SHOWN_MAX: usize = 20;

impl Divergence {
    pub fn to_value(&self) -> Value {
        let show = |call: &Call| serde_json::to_value(call).unwrap_or(Value::Null);
        json!({
            "index": self.index,
            "expected": show(&self.expected),
            "actual": self.actual.as_ref().map(show),
            "unread": self.unread.iter().take(UNREAD_SHOWN_MAX).map(show).collect::<Vec<_>>(),
            "unread_count": self.unread.len(),
        })
    }
}

impl std::fmt::Display for Divergence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { index, expected, actual, unread } = self;
        match actual {
            Some(actual) if actual.name() != expected.name() => write!(
                f,
                "host call {index} was {} when the node first ran, and is {} now",
                expected.name(),
                actual.name()
            ),
            Some(actual) => write!(
                f,
                "host call {index} is {} as when the node first ran, but with another request",
                actual.name()
            ),
            None => write!(
                f,
                "the node finished after {index} host calls; when it first ran it made {} more, the next being {}",
                unread.len(),
                expected.name()
            ),
        }
    }
}

impl Journal {
    /// As loaded from the store: all of it durable, to be replayed from the start.
    pub fn recorded(entries: Vec<Entry>, generation: u32) -> Self {
        let durable = entries.len();
        Self { entries, cursor: 0, durable, generation }
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether what the node does now it has done before.
    pub fn is_replaying(&self) -> bool {
        self.cursor < self.entries.len()
    }

    /// Back to the start, for another instantiation. Says when the attempt begins that it is part of, if it
    /// begins before the first call.
    pub fn rewind(&mut self) -> Option<Timestamp> {
        self.cursor = 0;
        self.pass_attempts()
    }

    /// Goes past where attempts begin, and says when the last of them does.
    fn pass_attempts(&mut self) -> Option<Timestamp> {
        let mut at = None;
        while let Some(entry) = self.entries.get(self.cursor).filter(|entry| entry.call == Call::Attempt) {
            at = at.max(Some(entry.at));
            self.cursor += 1;
        }
        at
    }

    /// Begins another attempt after one that failed: answers, and effects that are done or failed for good,
    /// stay up to the first effect that may be sent again or question that nobody answered; what came of that
    /// is cut off, and so is an effect that was under way: whether it was sent its own record says. Returns how many
    /// entries are left of what was there.
    pub fn retry(&mut self, at: Timestamp) -> usize {
        let open = |entry: &Entry| match &entry.reply {
            Reply::Effect(EffectReply::Begun | EffectReply::Retryable(_)) => true,
            Reply::Effect(EffectReply::Asked { answer, .. }) => answer.is_none(),
            Reply::Answers(answers) => answers.iter().any(Option::is_none),
            _ => false,
        };
        let kept = self.entries.iter().position(open).unwrap_or(self.entries.len());
        self.cut(kept);
        // What a person said about an effect that is not done yet stays as well, and the next attempt goes by it.
        debug_assert!(self.entries.iter().all(Entry::is_answered), "nothing is waited for behind the mark");
        self.entries.push(Entry { call: Call::Attempt, reply: Reply::Attempt, at });
        kept
    }

    /// Drops the entries from `index` on; what is asked from there has new ids.
    pub fn cut(&mut self, index: usize) {
        self.entries.truncate(index);
        self.durable = self.durable.min(index);
        self.cursor = 0;
        self.generation += 1;
    }

    /// Takes one call and says what is known of it.
    pub fn next(&mut self, call: &Call) -> Next {
        let index = self.cursor;
        let Some(entry) = self.entries.get(index) else {
            return Next::Fresh { index };
        };
        if entry.call != *call {
            return Next::Diverged(self.divergence(index, entry, Some(call)));
        }
        let (reply, at) = (entry.reply.clone(), entry.at);
        self.cursor += 1;
        // The attempt that begins behind this call has begun before the next is made.
        let at = self.pass_attempts().map_or(at, |begun| at.max(begun));
        Next::Recorded { index, reply, at }
    }

    /// Takes down a call that [`Self::next`] called fresh.
    pub fn record(&mut self, call: Call, reply: Reply, at: Timestamp) {
        debug_assert_eq!(self.cursor, self.entries.len(), "only what is new is recorded");
        self.entries.push(Entry { call, reply, at });
        self.cursor = self.entries.len();
    }

    /// Sets what is now known of the call at `index`; it is no longer durable as it stands.
    pub fn settle(&mut self, index: usize, reply: Reply, at: Timestamp) {
        if let Some(entry) = self.entries.get_mut(index) {
            entry.reply = reply;
            entry.at = at;
            self.durable = self.durable.min(index);
        }
    }

    /// Delivers an answer to the question at place `place` of entry `index`. Its durability is the
    /// question's own row, so the entry stays durable.
    pub fn answer(&mut self, index: usize, place: usize, answer: Json, at: Timestamp) {
        let Some(entry) = self.entries.get_mut(index) else {
            return;
        };
        match &mut entry.reply {
            Reply::Answers(answers) => {
                if let Some(slot) = answers.get_mut(place) {
                    *slot = Some(answer);
                }
            }
            Reply::Effect(EffectReply::Asked { answer: slot, .. }) => *slot = Some(answer),
            Reply::Effect(_) | Reply::Steering(_) | Reply::Attempt => return,
        }
        entry.at = entry.at.max(at);
    }

    /// Entries that are not durable as they stand, with their places.
    pub fn undurable(&self) -> impl Iterator<Item = (usize, &Entry)> {
        self.entries.iter().enumerate().skip(self.durable)
    }

    /// All entries are durable as they stand.
    pub fn mark_durable(&mut self) {
        self.durable = self.entries.len();
    }

    /// How many of the node's own questions were asked before entry `index`.
    pub fn orders_before(&self, index: usize) -> usize {
        self.entries[..index.min(self.entries.len())].iter().map(|entry| entry.call.questions().len()).sum()
    }

    /// The entry that a paused task waits at.
    pub fn waiting(&self) -> Option<(usize, &Entry)> {
        let index = self.entries.iter().rposition(|entry| entry.call != Call::Attempt)?;
        let entry = &self.entries[index];
        (!entry.is_settled()).then_some((index, entry))
    }

    /// Whether a node that is done has made all the calls that it made before.
    pub fn finish(&self) -> Result<(), Box<Divergence>> {
        match self.entries.get(self.cursor) {
            None => Ok(()),
            Some(entry) => Err(self.divergence(self.cursor, entry, None)),
        }
    }

    fn divergence(&self, index: usize, expected: &Entry, actual: Option<&Call>) -> Box<Divergence> {
        Box::new(Divergence {
            index,
            expected: expected.call.clone(),
            actual: actual.cloned(),
            unread: self.entries[index..].iter().map(|entry| entry.call.clone()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(text: &str) -> Call {
        Call::Interrupt {
            question: Question {
                payload: Json::string(text),
                answer_schema: None,
                expires_after_ms: None,
                default_answer: None,
            },
        }
    }

    fn answered(text: &str) -> Entry {
        Entry { call: ask(text), reply: Reply::Answers(vec![Some(Json::null())]), at: Timestamp(7) }
    }

    #[test]
    fn the_same_calls_in_the_same_order_replay() {
        let mut journal = Journal::recorded(vec![answered("a"), answered("b")], 0);
        assert!(journal.is_replaying());
        assert!(matches!(journal.next(&ask("a")), Next::Recorded { index: 0, .. }));
        assert!(matches!(journal.next(&ask("b")), Next::Recorded { index: 1, .. }));
        assert!(!journal.is_replaying());
        assert_eq!(journal.next(&ask("c")), Next::Fresh { index: 2 });
        assert_eq!(journal.finish(), Ok(()));
    }

    #[test]
    fn another_call_in_its_place_diverges() {
        let mut journal = Journal::recorded(vec![answered("a"), answered("b")], 0);
        let Next::Diverged(divergence) = journal.next(&ask("b")) else { panic!() };
        assert_eq!((divergence.index, divergence.unread.len()), (0, 2));
        assert_eq!(divergence.actual, Some(ask("b")));
    }

    #[test]
    fn finishing_early_diverges() {
        let mut journal = Journal::recorded(vec![answered("a"), answered("b")], 0);
        journal.next(&ask("a"));
        let divergence = journal.finish().unwrap_err();
        assert_eq!((divergence.index, &divergence.actual), (1, &None));
        assert_eq!(divergence.unread, [ask("b")]);
    }

    #[test]
    fn what_is_new_or_changed_is_not_durable() {
        let mut journal = Journal::recorded(vec![answered("a")], 0);
        journal.next(&ask("a"));
        let effect = Call::Effect { name: "e".into(), key: "k".into(), input: Json::null() };
        assert_eq!(journal.next(&effect), Next::Fresh { index: 1 });
        journal.record(effect, Reply::Effect(EffectReply::Begun), Timestamp(8));
        assert_eq!(journal.undurable().count(), 1);
        journal.mark_durable();
        let done = Reply::Effect(EffectReply::Known(EffectOutcome::Done(Json::null())));
        journal.settle(1, done, Timestamp(9));
        assert_eq!(journal.undurable().map(|(i, _)| i).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn an_effect_that_is_not_done_waits_also_where_another_attempt_began_behind_it() {
        let effect = Call::Effect { name: "e".into(), key: "k".into(), input: Json::null() };
        let asked = |kind, answer| Reply::Effect(EffectReply::Asked { kind, answer });
        let approved = asked(InterruptKind::Approve, Some(Json::null()));
        let entry = Entry { call: effect.clone(), reply: approved, at: Timestamp(8) };
        let mut journal = Journal::recorded(vec![answered("a"), entry], 0);
        // What was approved stays so, and the next attempt goes by it.
        assert_eq!(journal.retry(Timestamp(9)), 2);
        journal.next(&ask("a"));
        assert!(matches!(journal.next(&effect), Next::Recorded { index: 1, .. }));
        journal.settle(1, asked(InterruptKind::InDoubt, None), Timestamp(10));
        let waits_at = journal.waiting().map(|(index, entry)| (index, entry.is_answered()));
        assert_eq!(waits_at, Some((1, false)), "the question would be nobody's");
        // And where nobody answers it, that attempt's failure leaves nothing that waits.
        assert_eq!(journal.retry(Timestamp(11)), 1);
        assert_eq!(journal.waiting(), None);
    }
}
