//! Compares responses with the data set's replies by producer: the model alone, the model checked,
//! the model checked and guarded, and the replacements.

use std::collections::BTreeMap;

use turnstream_operators::faithful::{self, Unfaithful};
use turnstream_operators::generation::grounded::{self, Ungrounded};
use turnstream_ports::model::unified::{Wording, text_of};

use super::templates::{self, Templates};
use super::{Frame, Reply, UnifiedCase, UnifiedSample, Worded};
use crate::eval::bootstrap::{Conversations, Figure, Mean};
use crate::eval::generation::bleu::BleuCounts;
use crate::eval::generation::rouge::rouge_l;
use crate::eval::generation::tokens::Tokenisation;

/// Returns the first required value that a response lacks.
fn lacks<'f>(text: &str, frame: &'f Frame) -> Option<&'f str> {
    let text = text.to_lowercase();
    frame.required().find(|value| !text.contains(&value.to_lowercase()))
}

/// Returns the reason why a draft is refused.
fn wrong(draft: &Wording, frame: &Frame, case: &UnifiedCase, reply: &Reply) -> Option<Unfaithful> {
    let dialogue = case.dialogue.iter();
    let said = dialogue.flat_map(|said| [Some(said.user.as_str()), said.response.as_deref()]);
    let known: Vec<&str> =
        said.flatten().chain(reply.evidence.iter().map(|piece| &*piece.text)).collect();
    // The frame holds what the user asked; the check for missing values below requires each of
    // them.
    let checked = faithful::check(&draft.said, draft.is_whole, &frame.row(), "", &known);
    let lacking =
        || lacks(&text_of(&draft.said), frame).map(|it| Unfaithful::Missing(it.to_owned()));
    checked.err().or_else(lacking)
}

fn name(wrong: &Unfaithful) -> &'static str {
    match wrong {
        Unfaithful::Unfinished => "unfinished",
        Unfaithful::Number(_) => "number",
        Unfaithful::Missing(_) => "missing",
        Unfaithful::Slot { .. } => "slot",
        Unfaithful::Polarity(_) => "polarity",
    }
}

/// Returns the kind of statement in a draft that the frame's row does not support.
fn strange(draft: &Wording, frame: &Frame, asked: &str) -> Option<&'static str> {
    Some(match grounded::check(&draft.said, &frame.row(), asked).err()? {
        Ungrounded::Word(_) => "word",
        Ungrounded::Answer(_) => "answer",
        Ungrounded::Denied(_) => "denied",
        Ungrounded::Unnamed(_) => "unnamed",
        Ungrounded::Reversed(_) => "reversed",
        Ungrounded::Nothing => "nothing",
        Ungrounded::Twice(_) => "twice",
        Ungrounded::Subject(_) => "subject",
    })
}

/// The figures of one response.
#[derive(Clone, Copy, Default)]
struct WordingFigures {
    counts: BleuCounts,
    rouge_l: f64,
    /// The number of required values, and the number of those in the response.
    values: Option<(u32, u32)>,
    is_foreign: bool,
}

/// All responses of one producer.
#[derive(Default)]
struct Making {
    beside: Vec<WordingFigures>,
    by: BTreeMap<&'static str, usize>,
    refused: BTreeMap<&'static str, usize>,
}

/// The responses to all cases.
#[derive(Default)]
pub(super) struct Wordings {
    of: Vec<usize>,
    makings: BTreeMap<&'static str, Making>,
    pub(super) samples: Vec<UnifiedSample>,
}

impl Wordings {
    /// Adds the model's drafts from a reply's evidence, and from none.
    pub(super) fn add(
        &mut self,
        case: &UnifiedCase,
        reply: &Reply,
        drafts: &[Wording],
        without: &[Wording],
        templates: Option<&Templates>,
    ) {
        self.of.push(case.conversation);
        let text = |draft: Option<&Wording>| draft.map_or_else(String::new, |it| text_of(&it.said));
        let best = text(drafts.first());
        let evidence: Vec<String> = reply.evidence.iter().map(|piece| piece.text.clone()).collect();
        self.put("model", case, reply, &best);
        self.put("without evidence", case, reply, &text(without.first()));
        self.put("evidence", case, reply, &evidence.join("; "));
        let mut sample = UnifiedSample {
            user: case.dialogue.last().map_or_else(String::new, |last| last.user.clone()),
            evidence,
            reply: reply.text.clone(),
            model: best.clone(),
            refused: None,
            checked: None,
            by: None,
            guarded: None,
        };
        if let Some(frame) = &reply.frame {
            let template = templates.and_then(|templates| templates.filled(frame));
            let stands_in = match template {
                Some(template) => (template, "template"),
                None => (templates::realised(frame), "realiser"),
            };
            self.put("no model", case, reply, &stands_in.0);
            let is_wrong = |draft: &Wording| wrong(draft, frame, case, reply);
            let said = self.first("checked", case, reply, drafts, &stands_in, |draft| {
                is_wrong(draft).as_ref().map(name)
            });
            let asked = &sample.user;
            let guarded = self.first("guarded", case, reply, drafts, &stands_in, |draft| {
                is_wrong(draft).as_ref().map(name).or_else(|| strange(draft, frame, asked))
            });
            sample.refused = drafts.first().and_then(is_wrong).map(|wrong| wrong.to_string());
            (sample.checked, sample.by) = (Some(said.0), Some(said.1));
            sample.guarded = Some(guarded.0);
        }
        self.samples.push(sample);
    }

    /// Adds the first draft that is not refused, or else the replacement, to a producer's
    /// responses; returns the response and its producer.
    fn first(
        &mut self,
        making: &'static str,
        case: &UnifiedCase,
        reply: &Reply,
        drafts: &[Wording],
        (stands_in, made): &(String, &'static str),
        refused: impl Fn(&Wording) -> Option<&'static str>,
    ) -> (String, &'static str) {
        let right = drafts.iter().position(|draft| refused(draft).is_none());
        let said = right.and_then(|at| drafts.get(at)).map(|draft| text_of(&draft.said));
        let by = match right {
            Some(0) => "model",
            Some(_) => "another draft",
            None => made,
        };
        let said = said.unwrap_or_else(|| stands_in.clone());
        self.put(making, case, reply, &said);
        let counted = self.makings.entry(making).or_default();
        *counted.by.entry(by).or_default() += 1;
        if let Some(refused) = drafts.first().and_then(refused) {
            *counted.refused.entry(refused).or_default() += 1;
        }
        (said, by)
    }

    fn put(&mut self, making: &'static str, case: &UnifiedCase, reply: &Reply, said: &str) {
        let tokens = |text: &str| Tokenisation::English.bleu(&text.to_lowercase());
        let overlap = |text: &str| Tokenisation::English.rouge(text);
        let values = reply.frame.as_ref().map(|frame| {
            let lower = said.to_lowercase();
            let (all, there) = frame.required().fold((0, 0), |(all, there), value| {
                (all + 1, there + u32::from(lower.contains(&value.to_lowercase())))
            });
            (all, there)
        });
        let beside = WordingFigures {
            counts: BleuCounts::of(&tokens(said), &tokens(&reply.text)),
            rouge_l: rouge_l(&overlap(said), &overlap(&reply.text)),
            values: values.filter(|(all, _)| *all > 0),
            is_foreign: is_foreign(said, case, reply),
        };
        self.makings.entry(making).or_default().beside.push(beside);
    }

    pub(super) fn figures(&self) -> BTreeMap<&'static str, Worded> {
        self.makings.iter().map(|(name, making)| (*name, self.worded(making))).collect()
    }

    fn worded(&self, making: &Making) -> Worded {
        let conversations = Conversations::new(&self.of);
        let counts: Vec<_> = making.beside.iter().map(|it| Some(it.counts)).collect();
        let bleu = |order| {
            let bleu = move |counts: &BleuCounts| Some(counts.bleu(order));
            conversations.figure(&counts, bleu).into()
        };
        let mean = |of: &dyn Fn(&WordingFigures) -> Option<Mean>| -> Figure {
            let parts: Vec<Option<Mean>> = making.beside.iter().map(of).collect();
            conversations.figure(&parts, Mean::value).into()
        };
        Worded {
            n: making.beside.len(),
            bleu_1: bleu(1),
            bleu_4: bleu(4),
            rouge_l: mean(&|it| Some(it.rouge_l.into())),
            values: mean(&|it| {
                let (all, there) = it.values?;
                let mut sum = Mean::default();
                (0..all).for_each(|at| sum += Mean::from(f64::from(u8::from(at < there))));
                Some(sum)
            }),
            whole: mean(&|it| {
                it.values.map(|(all, there)| f64::from(u8::from(all == there)).into())
            }),
            foreign_numbers: mean(&|it| Some(f64::from(u8::from(it.is_foreign)).into())),
            by: making.by.clone(),
            refused: making.refused.clone(),
        }
    }
}

/// Whether a response has a number that occurs neither in the evidence nor in the dialogue.
fn is_foreign(said: &str, case: &UnifiedCase, reply: &Reply) -> bool {
    let numbers = |text: &str| -> Vec<String> {
        let runs = text.split(|c: char| !c.is_ascii_digit()).filter(|run| !run.is_empty());
        runs.map(str::to_owned).collect()
    };
    let mut known: Vec<String> =
        reply.evidence.iter().flat_map(|piece| numbers(&piece.text)).collect();
    for exchange in &case.dialogue {
        known.extend(numbers(&exchange.user));
        known.extend(exchange.response.iter().flat_map(|text| numbers(text)));
    }
    numbers(said).iter().any(|number| !known.contains(number))
}
