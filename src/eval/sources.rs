//! Several sources from the plan to the refined response, on KBP (UniMS-RAG, sections 6.3 to 7.3): the unified model plans
//! which of persona and documents to ask, each is searched, the model judges what was found and words the
//! response from the best pieces, and self-refinement words it anew.
//!
//! ```text
//! dialogue ─▶ plan ─▶ persona ─▶ documents behind its first sentence ─▶ relevance ─▶ response ─▶ consistency
//!                                                                           ▲                        │
//!                                                                           └──── other evidence ◀───┘
//! ```
//!
//! Any part can be what the reply was annotated with (an oracle), or be left out (an ablation).
//! [`Setting`] says which; the same question is put to the model once for all settings.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::rc::Rc;

use serde::Serialize;
use turnstream_operators::consistency::Judge;
use turnstream_operators::model::encoder::EncodeError;
use turnstream_operators::model::unified::{
    EvidenceText, Exchange, Task, UnifiedAnswer, UnifiedRequest, tenths, text_of,
};
use turnstream_operators::self_refinement::lowest;
use turnstream_operators::sources::SourceKind;
use turnstream_schemas::Score;

use super::bootstrap::{Conversations, Mean};
use super::consistency::piece;
use super::generation::bleu::Counts;
use super::generation::rouge::rouge_l;
use super::generation::tokens::Tokenisation;
use super::persona::kbp::joined;
use super::retrieval::kbp::{self, Fusion, Lexicon, Order, Record};
use super::retrieval::{EvalError, records};
use super::unified::{Ask, Figure, MeasureError};

mod table;

pub use table::{Row, rows};

/// Tokens that a response has at most.
const MAX_TOKENS: u32 = 96;
/// From which score on evidence and a response agree.
const AGREES: f64 = 0.5;

/// A user's turn, what may be known, and the reply.
#[derive(Clone, Debug)]
pub struct Case {
    /// The conversation that it is in.
    pub conversation: usize,
    /// What was said so far; the last has no response yet.
    pub dialogue: Vec<Exchange>,
    /// What was answered.
    pub reply: String,
    /// What could be found.
    pub known: Rc<Known>,
    /// Sentences of the persona that the reply used, by their places.
    pub gold_personas: Vec<usize>,
    /// What else it used, by its places.
    pub gold_documents: Vec<usize>,
    /// How a retriever that is not the model ranks them.
    pub order: Order,
}

/// What could be found in a dialogue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The sentences of the answering side's persona.
    pub persona: Vec<String>,
    /// What is known, each with the place of the sentence that it stands behind.
    pub documents: Vec<(usize, String)>,
}

/// Who plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanBy {
    /// The unified model.
    Model,
    /// The annotation.
    Gold,
    /// Nobody: every source, always.
    Every,
    /// Nobody: no source, ever.
    None,
}

/// Who finds evidence in what is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindBy {
    /// A retriever that was trained for it, apart from the model.
    Fusion,
    /// The relevance that the unified model gives (the paper's "using itself as retriever").
    Model,
    /// The annotation, where it has any of the source; else the fusion.
    Gold,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Who plans.
    pub plan: PlanBy,
    /// Who finds evidence.
    pub retrieval: FindBy,
    /// Pieces of each source that the response is worded from, 1 or more; all of the annotation's.
    pub pieces: usize,
    /// Rounds of self-refinement.
    pub steps: u32,
    /// α: pieces that a round replaces at most.
    pub replaced: u32,
}

impl Default for Setting {
    fn default() -> Self {
        Self { plan: PlanBy::Model, retrieval: FindBy::Fusion, pieces: 1, steps: 0, replaced: 1 }
    }
}

/// Figures of responses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Turns.
    pub n: usize,
    /// BLEU of characters, 0..=100.
    pub bleu_1: Figure,
    /// ROUGE-L of characters, 0..=1.
    pub rouge_l: Figure,
    /// P.C, 0..=1 (eq 9 and 11): the share of turns whose response agrees with the sentence of the persona that the
    /// reply used; where it used none, those whose plan did not ask.
    pub persona_consistency: Figure,
    /// K.C, the same of documents (eq 10 and 11).
    pub knowledge_consistency: Figure,
    /// Rounds of self-refinement, in all.
    pub rounds: usize,
}

/// A response for reading.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// The user's words.
    pub user: String,
    /// What was planned.
    pub plan: Vec<SourceKind>,
    /// What the response was worded from, each with its relevance.
    pub evidence: Vec<(String, f64)>,
    /// What was answered in the data set.
    pub reply: String,
    /// What is said.
    pub response: String,
    /// The drafts before it.
    pub drafts: Vec<String>,
}

/// Why sources cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum SourcesError {
    /// The model fails.
    #[error(transparent)]
    Model(#[from] MeasureError),
    /// The judge of consistency fails.
    #[error("the judge of consistency: {0}")]
    Judge(#[from] EncodeError),
}

/// The cases of a split of KBP, ranked by a fusion that is learned from another one; where there is none, not ranked.
///
/// # Errors
/// A file cannot be read, or has no exchange.
pub fn read(
    path: &Path,
    train: Option<&Path>,
    conversations: Option<usize>,
    seed: u64,
) -> Result<Vec<Case>, EvalError> {
    let mut lexicon = Lexicon::default();
    let fusion = train.map(|train| Fusion::train(train, &mut lexicon)).transpose()?;
    let records = records::<Record>(path)?;
    let mut chosen: Vec<usize> = (0..records.len()).collect();
    if let Some(count) = conversations {
        fastrand::Rng::with_seed(seed).shuffle(&mut chosen);
        chosen.truncate(count);
        chosen.sort_unstable();
    }
    let of = |at: usize| {
        let record: &Record = &records[at];
        let orders = match &fusion {
            Some(fusion) => fusion.orders(record, &mut lexicon),
            None => vec![Order::default(); record.conversation.len()],
        };
        cases(at, record, orders)
    };
    let cases: Vec<Case> = chosen.into_iter().flat_map(of).collect();
    if cases.is_empty() { Err(EvalError::Nothing { path: path.to_owned() }) } else { Ok(cases) }
}

fn cases(conversation: usize, record: &Record, orders: Vec<Order>) -> Vec<Case> {
    let (mut ids, mut known) = (Vec::new(), Known::default());
    for (at, (id, sentence)) in record.persona.iter().enumerate() {
        known.persona.push(joined(sentence));
        for (below, text) in record.persona_kg.get(id).into_iter().flatten() {
            ids.push(format!("{id}-{below}"));
            known.documents.push((at, joined(text)));
        }
    }
    let known = Rc::new(known);
    let (mut dialogue, mut cases) = (Vec::<Exchange>::new(), Vec::new());
    for (exchange, order) in record.conversation.iter().zip(orders) {
        dialogue.push(Exchange { user: joined(&exchange.user), response: None });
        let used = |place: usize| exchange.used.get(place).into_iter().flatten();
        let reply = joined(&exchange.system);
        cases.push(Case {
            conversation,
            dialogue: dialogue.clone(),
            reply: reply.clone(),
            known: known.clone(),
            gold_personas: used(0)
                .filter_map(|id| record.persona.keys().position(|it| it == id))
                .collect(),
            gold_documents: used(1).filter_map(|id| ids.iter().position(|it| it == id)).collect(),
            order,
        });
        if let Some(last) = dialogue.last_mut() {
            last.response = Some(reply);
        }
    }
    cases
}

/// Asks the model, each question once.
pub struct Asked<'a> {
    ask: &'a mut Ask<'a>,
    answers: HashMap<UnifiedRequest, UnifiedAnswer>,
}

impl<'a> Asked<'a> {
    /// Who remembers nothing yet.
    pub fn new(ask: &'a mut Ask<'a>) -> Self {
        Self { ask, answers: HashMap::new() }
    }

    /// The answers to questions about one dialogue.
    fn ask(
        &mut self,
        dialogue: &[Exchange],
        tasks: Vec<Task>,
    ) -> Result<Vec<UnifiedAnswer>, MeasureError> {
        let requests: Vec<UnifiedRequest> = tasks
            .into_iter()
            .map(|task| UnifiedRequest { dialogue: dialogue.to_vec(), task })
            .collect();
        let mut unknown: Vec<UnifiedRequest> = Vec::new();
        for request in &requests {
            if !self.answers.contains_key(request) && !unknown.contains(request) {
                unknown.push(request.clone());
            }
        }
        if !unknown.is_empty() {
            let answers = (self.ask)(&unknown).map_err(MeasureError::Model)?;
            self.answers.extend(unknown.into_iter().zip(answers));
        }
        let answer = |request: &UnifiedRequest| {
            let none = || MeasureError::Model("no answer came back".to_owned());
            self.answers.get(request).cloned().ok_or_else(none)
        };
        requests.iter().map(answer).collect()
    }

    fn plan(&mut self, dialogue: &[Exchange]) -> Result<Vec<SourceKind>, MeasureError> {
        let kinds = vec![SourceKind::BotPersona, SourceKind::Documents];
        match self.ask(dialogue, vec![Task::Plan { kinds }])?.pop() {
            Some(UnifiedAnswer::Plan { kinds, .. }) => Ok(kinds),
            _ => Err(MeasureError::Model("no plan came back".to_owned())),
        }
    }

    fn relevance(
        &mut self,
        dialogue: &[Exchange],
        plan: &[SourceKind],
        pieces: Vec<EvidenceText>,
    ) -> Result<Vec<f64>, MeasureError> {
        let task = |evidence| Task::Relevance { plan: plan.to_vec(), evidence };
        let answers = self.ask(dialogue, pieces.into_iter().map(task).collect())?;
        let relevance = |answer| match answer {
            UnifiedAnswer::Relevance(relevance) => Ok(f64::from(relevance)),
            _ => Err(MeasureError::Model("no relevance came back".to_owned())),
        };
        answers.into_iter().map(relevance).collect()
    }

    fn response(
        &mut self,
        dialogue: &[Exchange],
        plan: &[SourceKind],
        evidence: &[Found],
    ) -> Result<String, MeasureError> {
        let evidence = evidence.iter().map(|found| (found.text.clone(), tenths(found.relevance)));
        let (plan, evidence) = (plan.to_vec(), evidence.collect());
        let task = Task::Response { plan, evidence, max_tokens: MAX_TOKENS, drafts: 1 };
        match self.ask(dialogue, vec![task])?.pop() {
            Some(UnifiedAnswer::Response(drafts)) if !drafts.is_empty() => {
                Ok(text_of(&drafts[0].said))
            }
            _ => Err(MeasureError::Model("no response came back".to_owned())),
        }
    }
}

/// A piece of evidence that a response is worded from.
#[derive(Clone, Debug)]
struct Found {
    text: EvidenceText,
    relevance: Score,
}

/// What one source gives, the best first, and how much of it was used.
struct Source {
    kind: SourceKind,
    ranked: Vec<EvidenceText>,
    used: usize,
}

impl Case {
    fn gold_plan(&self) -> Vec<SourceKind> {
        match (self.gold_personas.is_empty(), self.gold_documents.is_empty()) {
            (true, true) => Vec::new(),
            (_, true) => vec![SourceKind::BotPersona],
            (_, false) => vec![SourceKind::BotPersona, SourceKind::Documents],
        }
    }

    fn sentence(&self, place: usize) -> EvidenceText {
        evidence_text(SourceKind::BotPersona, &self.known.persona[place])
    }

    fn document(&self, place: usize) -> EvidenceText {
        evidence_text(SourceKind::Documents, &self.known.documents[place].1)
    }

    /// Places, those that are most relevant to the model first.
    fn by_relevance(
        &self,
        places: Vec<usize>,
        plan: &[SourceKind],
        text: impl Fn(usize) -> EvidenceText,
        asked: &mut Asked<'_>,
    ) -> Result<Vec<usize>, MeasureError> {
        let texts = places.iter().map(|place| text(*place)).collect();
        let scores = asked.relevance(&self.dialogue, plan, texts)?;
        let mut scored: Vec<(usize, f64)> = places.into_iter().zip(scores).collect();
        scored.sort_by(|a, b| b.1.total_cmp(&a.1));
        Ok(scored.into_iter().map(|(place, _)| place).collect())
    }

    /// Searches what is planned, in its order. Documents are those behind the first sentence that was found.
    fn search(
        &self,
        plan: &[SourceKind],
        setting: &Setting,
        asked: &mut Asked<'_>,
    ) -> Result<Vec<Source>, MeasureError> {
        let mut sources = Vec::new();
        // Without a plan for the persona nothing is behind anything: documents bring it along.
        if plan.is_empty() {
            return Ok(sources);
        }
        let is_gold = setting.retrieval == FindBy::Gold;
        let own = setting.retrieval == FindBy::Model;
        let mut personas = self.order.personas.clone();
        if own {
            personas = self.by_relevance(personas, plan, |place| self.sentence(place), asked)?;
        }
        let gold = |gold: &[usize]| if is_gold { gold.len() } else { 0 };
        first(&mut personas, if is_gold { &self.gold_personas } else { &[] });
        let count = gold(&self.gold_personas);
        sources.push(Source {
            kind: SourceKind::BotPersona,
            ranked: personas.iter().map(|place| self.sentence(*place)).collect(),
            used: if count > 0 { count } else { setting.pieces },
        });
        if plan.contains(&SourceKind::Documents) {
            let behind = personas.first().copied();
            let mut documents = self.order.documents.clone();
            documents.retain(|place| {
                Some(self.known.documents[*place].0) == behind
                    || (is_gold && self.gold_documents.contains(place))
            });
            if own {
                documents =
                    self.by_relevance(documents, plan, |place| self.document(place), asked)?;
            }
            first(&mut documents, if is_gold { &self.gold_documents } else { &[] });
            let count = gold(&self.gold_documents);
            sources.push(Source {
                kind: SourceKind::Documents,
                ranked: documents.iter().map(|place| self.document(*place)).collect(),
                used: if count > 0 { count } else { setting.pieces },
            });
        }
        Ok(sources)
    }

    /// The response to this turn.
    fn respond(
        &self,
        setting: &Setting,
        asked: &mut Asked<'_>,
        judge: &Judge,
    ) -> Result<Sample, SourcesError> {
        let plan = match setting.plan {
            PlanBy::Model => asked.plan(&self.dialogue)?,
            PlanBy::Gold => self.gold_plan(),
            PlanBy::Every => vec![SourceKind::BotPersona, SourceKind::Documents],
            PlanBy::None => Vec::new(),
        };
        // Documents bring along the persona that they depend on.
        let plan = match plan.contains(&SourceKind::Documents) {
            true => vec![SourceKind::BotPersona, SourceKind::Documents],
            false => plan,
        };
        let mut sources = self.search(&plan, setting, asked)?;
        let mut evidence = Vec::new();
        for source in &mut sources {
            source.used = source.used.min(source.ranked.len());
            let texts = source.ranked[..source.used].to_vec();
            evidence.extend(self.found(&plan, texts, asked)?);
        }
        let mut drafts = vec![asked.response(&self.dialogue, &plan, &evidence)?];
        for _ in 0..setting.steps {
            // A response from nothing is never refined.
            if evidence.is_empty() {
                break;
            }
            let response = drafts.last().map_or("", String::as_str);
            let pieces: Vec<_> = evidence.iter().map(|found| piece(&found.text.text)).collect();
            let consistency = judge.judge(response, &pieces.iter().collect::<Vec<_>>())?;
            let scores: Vec<f64> = evidence
                .iter()
                .zip(&consistency)
                .map(|(found, consistency)| found.relevance.get() * consistency)
                .collect();
            let mut gone = Vec::new();
            let mut has_new = false;
            for place in lowest(&scores, setting.replaced, 1.0) {
                let kind = evidence[place].text.kind;
                let source = sources.iter_mut().find(|source| source.kind == kind);
                let next = source.and_then(|source| {
                    let next = source.ranked.get(source.used).cloned();
                    source.used += usize::from(next.is_some());
                    next
                });
                match next {
                    Some(next) => {
                        has_new = true;
                        evidence[place] = self.found(&plan, vec![next], asked)?.remove(0);
                    }
                    None => gone.push(place),
                }
            }
            if !has_new && gone.len() == evidence.len() {
                // Some evidence stays: the best of it.
                gone.pop();
            }
            if !has_new && gone.is_empty() {
                break;
            }
            gone.sort_unstable();
            gone.iter().rev().for_each(|place| drop(evidence.remove(*place)));
            drafts.push(asked.response(&self.dialogue, &plan, &evidence)?);
        }
        let response = drafts.pop().unwrap_or_default();
        Ok(Sample {
            user: self.dialogue.last().map_or_else(String::new, |last| last.user.clone()),
            plan,
            evidence: evidence
                .into_iter()
                .map(|found| (found.text.text, found.relevance.get()))
                .collect(),
            reply: self.reply.clone(),
            response,
            drafts,
        })
    }

    /// Texts with the relevance that the model gives them.
    fn found(
        &self,
        plan: &[SourceKind],
        texts: Vec<EvidenceText>,
        asked: &mut Asked<'_>,
    ) -> Result<Vec<Found>, MeasureError> {
        let scores = asked.relevance(&self.dialogue, plan, texts.clone())?;
        let found = |(text, score)| Found { text, relevance: Score::new(score) };
        Ok(texts.into_iter().zip(scores).map(found).collect())
    }

    /// Whether a response agrees with what the reply used of one source, as eq 11 has it: with none of it, whether
    /// the source was not asked.
    fn agrees<'t>(
        &self,
        gold: impl Iterator<Item = &'t str>,
        is_asked: bool,
        response: &str,
        judge: &Judge,
    ) -> Result<f64, EncodeError> {
        let gold: Vec<_> = gold.map(piece).collect();
        let agrees = match (gold.is_empty(), is_asked) {
            (true, is_asked) => !is_asked,
            (false, false) => false,
            (false, true) => {
                let scores = judge.judge(response, &gold.iter().collect::<Vec<_>>())?;
                scores.into_iter().any(|score| score >= AGREES)
            }
        };
        Ok(f64::from(u8::from(agrees)))
    }
}

fn evidence_text(kind: SourceKind, text: &str) -> EvidenceText {
    EvidenceText { kind, text: text.to_owned(), columns: Vec::new() }
}

/// Puts some places before the others.
fn first(places: &mut [usize], gold: &[usize]) {
    places.sort_by_key(|place| !gold.contains(place));
}

/// Measures one setting on all cases.
///
/// # Errors
/// The model or the judge fails.
pub fn evaluate(
    cases: &[Case],
    setting: &Setting,
    asked: &mut Asked<'_>,
    judge: &Judge,
    mut done: impl FnMut(),
) -> Result<(Figures, Vec<Sample>), SourcesError> {
    let (mut bleu, mut rouge) = (Vec::new(), Vec::new());
    let (mut persona, mut knowledge) = (Vec::new(), Vec::new());
    let (mut samples, mut rounds) = (Vec::new(), 0);
    for case in cases {
        let sample = case.respond(setting, asked, judge)?;
        let tokens = |text: &str| Tokenisation::Chinese.bleu(text);
        bleu.push(Some(Counts::of(&tokens(&sample.response), &tokens(&case.reply))));
        let tokens = |text: &str| Tokenisation::Chinese.rouge(text);
        rouge.push(Some(Mean::from(rouge_l(&tokens(&sample.response), &tokens(&case.reply)))));
        let sentences = case.gold_personas.iter().map(|at| &*case.known.persona[*at]);
        let asks = |kind| sample.plan.contains(&kind);
        let agrees =
            case.agrees(sentences, asks(SourceKind::BotPersona), &sample.response, judge)?;
        persona.push(Some(Mean::from(agrees)));
        let documents = case.gold_documents.iter().map(|at| &*case.known.documents[*at].1);
        let agrees =
            case.agrees(documents, asks(SourceKind::Documents), &sample.response, judge)?;
        knowledge.push(Some(Mean::from(agrees)));
        rounds += sample.drafts.len();
        samples.push(sample);
        done();
    }
    let conversations = Conversations::new(cases.iter().map(|case| case.conversation));
    let mean =
        |parts: &[Option<Mean>]| -> Figure { conversations.figure(parts, Mean::value).into() };
    let figures = Figures {
        n: cases.len(),
        bleu_1: conversations.figure(&bleu, |counts| Some(counts.bleu(1))).into(),
        rouge_l: mean(&rouge),
        persona_consistency: mean(&persona),
        knowledge_consistency: mean(&knowledge),
        rounds,
    };
    Ok((figures, samples))
}

/// Recall@1 of the model as a retriever, where the plan is known (the paper's table 4): all sentences, and all that is
/// known in the dialogue, ranked by the relevance that it gives.
///
/// # Errors
/// The model fails.
pub fn recall(
    cases: &[Case],
    asked: &mut Asked<'_>,
    mut done: impl FnMut(),
) -> Result<kbp::Figures, MeasureError> {
    // By whether documents were used: replies, and those whose first sentence and document are right.
    let mut right: BTreeMap<bool, [usize; 3]> = BTreeMap::new();
    for case in cases {
        let plan = case.gold_plan();
        done();
        if plan.is_empty() {
            continue;
        }
        let all = (0..case.known.persona.len()).collect();
        let personas = case.by_relevance(all, &plan, |place| case.sentence(place), asked)?;
        let both = !case.gold_documents.is_empty();
        let counts = right.entry(both).or_default();
        counts[0] += 1;
        let is_right = |found: Option<&usize>, gold: &[usize]| {
            usize::from(found.is_some_and(|found| gold.contains(found)))
        };
        counts[1] += is_right(personas.first(), &case.gold_personas);
        if both {
            let all = (0..case.known.documents.len()).collect();
            let documents = case.by_relevance(all, &plan, |place| case.document(place), asked)?;
            counts[2] += is_right(documents.first(), &case.gold_documents);
        }
    }
    let of = |both: bool| right.get(&both).copied().unwrap_or_default();
    let share = |[n, persona, documents]: [usize; 3]| {
        [persona, documents].map(|right| right as f64 / n.max(1) as f64)
    };
    let ([persona, _], [both_persona, both_documents]) = (share(of(false)), share(of(true)));
    Ok(kbp::Figures {
        n: of(false)[0] + of(true)[0],
        persona,
        both_persona,
        both_documents: Some(both_documents),
    })
}

#[cfg(test)]
mod tests;
