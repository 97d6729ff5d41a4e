//! Fact selection picks the facts that the response is made from, and orders them. (DCRAG eq 7.)
//!
//! The stage picks up to twenty facts: from the foreseen set first, then, while there is room, from the
//! unforeseen set. Within a set it picks by maximal marginal relevance: the next fact is the one with the
//! largest λ·relevance − (1 − λ)·likeness to the facts picked so far. It never picks a fact that repeats
//! another (the same two concepts, or the same words), and it limits the facts of one relation at one
//! concept, so that twenty facts are not twenty ways to say one thing. The facts of a set stay in the order
//! of picking.
//!
//! Beside the facts the stage selects passages of documents and rows of tables: the most relevant ones that
//! do not repeat a more relevant one. They come before the facts where the best of them is relevant enough
//! to lead, else after them. The first piece of evidence leads the response. Retrieved sentences of the
//! turn's persona are all selected, after both; generation deselects them where the generator does not see
//! them.
//!
//! Key: none. State: none. Where the stage fails and may degrade, it selects the most relevant facts
//! without further rules (the paper's ablation −FS). It never drops the mark of a denied fact, and never
//! picks an unforeseen fact before a foreseen one that may be picked.

mod passages;
mod prompted;

use std::hash::Hash;

use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use turnstream_schemas::{Evidence, FactStatement, SelectionAnswer, Stage};

use crate::flow::{Candidates, Epoch, TurnInFlight};
use crate::prompted::{Answered, PromptedConfig, Slot};
use crate::ranking::jaccard;
use crate::stage::{OnFailure, Streams, run};
use crate::stage_config::StageConfig;
use crate::stage_context::StageContext;
use crate::stage_form::{DecideInForm, InForm, StageForm};

/// How facts are selected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FactSelectionConfig {
    /// How facts are picked; `off` selects the most relevant ones.
    pub form: StageForm,
    /// How the language model of the prompted form is asked.
    pub prompted: PromptedConfig,
    /// What happens to a turn where the stage fails.
    pub on_failure: OnFailure,
    /// The most facts selected; 1..=1024. The paper's number.
    #[schemars(range(min = 1, max = 1024))]
    pub max_selected: u32,
    /// λ: the share of relevance against novelty; 0..=1. With 0.7 relevance dominates.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub relevance_share: f64,
    /// The least relevance of an unforeseen fact that is selected; 0..=1. Irrelevant unforeseen
    /// facts are the paper's most common error; a foreseen fact connects query and topic, and has
    /// no such bound.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_unforeseen_relevance: f64,
    /// The most selected facts with the same relation at the same concept; 1..=1024.
    #[schemars(range(min = 1, max = 1024))]
    pub max_per_relation_and_concept: u32,
    /// The least likeness of words (Jaccard) at which a fact counts as a repeat of another; 0..=1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub repeat_likeness: f64,
    /// The most passages of documents and rows of tables selected; 1..=1024.
    #[schemars(range(min = 1, max = 1024))]
    pub max_passages_selected: u32,
    /// The least relevance of a passage or row that is selected; 0..=1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_passage_relevance: f64,
    /// The least relevance at which a passage or row leads the evidence, before all facts; 0..=1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_leading_passage_relevance: f64,
    /// The most unselected facts, and the most unselected passages and rows, that the record keeps;
    /// 0..=1024.
    #[schemars(range(max = 1024))]
    pub max_unselected_in_record: u32,
}

impl Default for FactSelectionConfig {
    fn default() -> Self {
        Self {
            form: StageForm::Lexical,
            prompted: PromptedConfig::default(),
            on_failure: OnFailure::Degrade,
            max_selected: 20,
            relevance_share: 0.7,
            min_unforeseen_relevance: 0.2,
            max_per_relation_and_concept: 3,
            repeat_likeness: 0.99,
            max_passages_selected: 3,
            min_passage_relevance: 0.15,
            min_leading_passage_relevance: 0.25,
            max_unselected_in_record: 10,
        }
    }
}

impl StageConfig for FactSelectionConfig {
    fn prompted(&self) -> Option<&PromptedConfig> {
        Some(&self.prompted).filter(|_| self.form == StageForm::Prompted)
    }
}

/// Runs fact selection over a stream of turns. Returns (turns with their evidence, faults).
pub fn fact_selection<'scope>(
    turns: StreamVec<'scope, Epoch, TurnInFlight>,
    config: FactSelectionConfig,
    context: &StageContext,
) -> Streams<'scope, TurnInFlight> {
    run(turns, FactSelection::stage(config, context), &context.runner)
}

/// The stage.
struct FactSelection {
    config: FactSelectionConfig,
}

impl FactSelection {
    fn stage(config: FactSelectionConfig, context: &StageContext) -> InForm<Self> {
        let (form, on_failure) = (config.form, config.on_failure);
        InForm::new(Self { config }, form, on_failure, context)
    }
}

impl DecideInForm for FactSelection {
    type Decision = Vec<Evidence>;
    type Answer = SelectionAnswer;

    const STAGE: Stage = Stage::FactSelection;

    fn prompted(&self) -> Option<&PromptedConfig> {
        self.config.prompted()
    }

    fn by_rules(&self, turn: &TurnInFlight) -> Vec<Evidence> {
        select(&turn.candidates, &self.config)
    }

    /// Rules select passages in every form.
    fn is_for_rules(&self, turn: &TurnInFlight) -> bool {
        let Candidates { foreseen, unforeseen, .. } = &turn.candidates;
        foreseen.is_empty() && unforeseen.is_empty()
    }

    fn fill(&self, turn: &TurnInFlight, slot: Slot) -> String {
        prompted::fill(turn, slot)
    }

    fn understand(&self, turn: &TurnInFlight, said: Answered<SelectionAnswer>) -> Vec<Evidence> {
        prompted::selected(&turn.candidates, &said.answer, &self.config)
    }

    fn without(&self, turn: &TurnInFlight) -> Vec<Evidence> {
        most_relevant(&turn.candidates, &self.config)
    }

    fn write(&self, turn: &mut TurnInFlight, evidence: Vec<Evidence>) {
        turn.evidence = evidence;
        turn.candidates = Candidates::default();
    }
}

/// Selects the most relevant facts, foreseen first; passages and persona as in the other forms.
fn most_relevant(candidates: &Candidates, config: &FactSelectionConfig) -> Vec<Evidence> {
    with_facts(most_relevant_facts(candidates, config), candidates, config)
}

/// Adds the passages and the sentences of the persona to facts that begin with the selected ones.
/// Returns selected evidence first.
fn with_facts(
    facts: Vec<Evidence>,
    candidates: &Candidates,
    config: &FactSelectionConfig,
) -> Vec<Evidence> {
    let found = passages::merged(&candidates.rows, &candidates.passages);
    let mut evidence = passages::join(facts, &found, config);
    let selected = evidence.iter().take_while(|evidence| evidence.selected).count();
    let persona = candidates.persona.iter();
    let persona = persona.map(|sentence| Evidence { selected: true, ..sentence.clone() });
    evidence.splice(selected..selected, persona);
    evidence
}

fn most_relevant_facts(candidates: &Candidates, config: &FactSelectionConfig) -> Vec<Evidence> {
    let ranked = candidates.foreseen.iter().chain(&candidates.unforeseen);
    let kept = config.max_selected + config.max_unselected_in_record;
    let mut evidence: Vec<Evidence> = ranked.take(kept as usize).cloned().collect();
    for selected in evidence.iter_mut().take(config.max_selected as usize) {
        selected.selected = true;
    }
    evidence
}

/// Returns the evidence of a turn: selected facts and passages in their order, then the persona,
/// then the most relevant of the others, facts first.
pub fn select(candidates: &Candidates, config: &FactSelectionConfig) -> Vec<Evidence> {
    with_facts(select_facts(candidates, config), candidates, config)
}

/// Returns selected facts in the order of selection, then the most relevant of the others, foreseen
/// first.
fn select_facts(candidates: &Candidates, config: &FactSelectionConfig) -> Vec<Evidence> {
    let all: Vec<&Evidence> = candidates.foreseen.iter().chain(&candidates.unforeseen).collect();
    let mut picking = Picking::new(&all, config);
    let foreseen = candidates.foreseen.len();
    picking.pick_from(0..foreseen);
    picking.forbid(foreseen..all.len(), |evidence| {
        evidence.relevance.get() < config.min_unforeseen_relevance
    });
    picking.pick_from(foreseen..all.len());

    let picked = picking.picked;
    let mut chosen = vec![false; all.len()];
    picked.iter().for_each(|at| chosen[*at] = true);
    let rest = (0..all.len()).filter(|at| !chosen[*at]);
    let selected = picked.iter().map(|at| Evidence { selected: true, ..all[*at].clone() });
    let kept = rest.take(config.max_unselected_in_record as usize).map(|at| all[at].clone());
    selected.chain(kept).collect()
}

/// The state of a selection.
struct Picking<'e> {
    config: &'e FactSelectionConfig,
    all: &'e [&'e Evidence],
    /// By fact: its distinct words, as sorted numbers.
    words: Vec<Vec<u32>>,
    /// By fact: the numbers of its head and tail, the lesser first.
    ends: Vec<[usize; 2]>,
    /// By fact: the numbers of its relation with its head, and with its tail.
    sides: Vec<[usize; 2]>,
    /// By fact: the largest likeness to a picked fact.
    likeness: Vec<f64>,
    /// By fact: whether it must not be picked (any more).
    out: Vec<bool>,
    /// By number of a relation with a concept: the number of picked facts.
    saturation: Vec<u32>,
    /// The picked facts, in order.
    picked: Vec<usize>,
}

impl<'e> Picking<'e> {
    fn new(all: &'e [&'e Evidence], config: &'e FactSelectionConfig) -> Self {
        let mut numbers = FxHashMap::default();
        let facts = || all.iter().map(|evidence| evidence.fact.as_ref());
        let (mut concepts, mut of_relations) = (FxHashMap::default(), FxHashMap::default());
        let ends = facts().map(|fact| {
            let mut ends = concepts_of(fact).map(|concept| number(&mut concepts, concept));
            ends.sort_unstable();
            ends
        });
        let sides = facts().map(|fact| {
            let relation = fact.map_or("", |fact| fact.relation.as_str());
            concepts_of(fact).map(|concept| number(&mut of_relations, (relation, concept)))
        });
        let (ends, sides): (Vec<_>, Vec<_>) = (ends.collect(), sides.collect());
        Self {
            config,
            all,
            words: all.iter().map(|evidence| words(evidence, &mut numbers)).collect(),
            ends,
            sides,
            likeness: vec![0.0; all.len()],
            // A fact from a concept to itself says nothing.
            out: facts().map(|fact| fact.is_none_or(|fact| fact.head == fact.tail)).collect(),
            saturation: vec![0; of_relations.len()],
            picked: Vec::new(),
        }
    }

    /// Excludes the unwanted facts of a range.
    fn forbid(&mut self, range: std::ops::Range<usize>, unwanted: impl Fn(&Evidence) -> bool) {
        for at in range {
            self.out[at] |= unwanted(self.all[at]);
        }
    }

    /// Picks from a range of the facts until it is exhausted or enough are picked.
    fn pick_from(&mut self, range: std::ops::Range<usize>) {
        while self.picked.len() < self.config.max_selected as usize {
            let mut best: Option<(f64, usize)> = None;
            for at in range.clone().filter(|at| !self.out[*at]) {
                let gain = self.gain(at);
                // Of equals the first: the facts are in order of relevance, then of their keys.
                if best.is_none_or(|(most, _)| gain > most) {
                    best = Some((gain, at));
                }
            }
            let Some((_, at)) = best else { return };
            self.pick(at);
        }
    }

    /// Returns the marginal relevance of a fact.
    fn gain(&self, at: usize) -> f64 {
        let share = self.config.relevance_share;
        share * self.all[at].relevance.get() - (1.0 - share) * self.likeness[at]
    }

    /// Picks a fact, and excludes those that it makes superfluous.
    fn pick(&mut self, at: usize) {
        self.picked.push(at);
        self.out[at] = true;
        for side in self.sides[at] {
            self.saturation[side] += 1;
        }
        for other in 0..self.all.len() {
            if !self.out[other] {
                let likeness = jaccard(&self.words[at], &self.words[other]);
                self.likeness[other] = self.likeness[other].max(likeness);
                self.out[other] = self.ends[at] == self.ends[other]
                    || likeness >= self.config.repeat_likeness
                    || self.is_saturated(other);
            }
        }
    }

    /// Whether one of a fact's concepts has given enough facts of its relation.
    fn is_saturated(&self, at: usize) -> bool {
        let most = self.config.max_per_relation_and_concept;
        self.sides[at].iter().any(|side| self.saturation[*side] >= most)
    }
}

/// Returns the two concepts of a fact.
fn concepts_of(fact: Option<&FactStatement>) -> [&str; 2] {
    fact.map_or(["", ""], |fact| [&fact.head, &fact.tail])
}

/// Returns the number of a key: how many other keys came before it.
fn number<K: Hash + Eq>(numbers: &mut FxHashMap<K, usize>, key: K) -> usize {
    let next = numbers.len();
    *numbers.entry(key).or_insert(next)
}

/// Returns the distinct words of a fact's concepts as sorted numbers.
fn words<'e>(evidence: &'e Evidence, numbers: &mut FxHashMap<&'e str, u32>) -> Vec<u32> {
    let Some(fact) = &evidence.fact else { return Vec::new() };
    let mut words: Vec<u32> = fact
        .head
        .split(' ')
        .chain(fact.tail.split(' '))
        .map(|word| {
            let next = numbers.len() as u32;
            *numbers.entry(word).or_insert(next)
        })
        .collect();
    words.sort_unstable();
    words.dedup();
    words
}

#[cfg(test)]
mod tests;
