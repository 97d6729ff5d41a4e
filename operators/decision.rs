//! The decision says what the response does: answer, ask back, decline, hand over to a person, or
//! only keep the conversation going.
//!
//! The stage reads the evidence that retrieval found. In the learned form, the reader reads the
//! utterance with each of the most relevant passages and rows, scores each sentence and cell
//! against the case that none answers, and tells the purpose of the utterance. The response answers
//! where enough of such answers were right on development data (`min_precision`), where the
//! utterance names a row and the column, or where table retrieval found the answer to a row
//! operation (the cheapest, those under an amount). It says the best sentence and those beside it
//! that answer too. Where the utterance asks several questions, or for a row and something else, the
//! reader reads each by itself.
//! Where two rows fit about equally well, or it is too uncertain that the best passages answer, the
//! response asks which one is meant, and answers the question from the one that the user chooses.
//! Otherwise it declines. The lexical form goes by the relevance of the evidence and by the words of the
//! utterance.
//!
//! The conversation of a user who asks for a person, complains of repeated trouble or speaks of
//! danger is handed over, whatever the evidence. By default the response says no facts of the graph
//! where documents or tables are configured (`sources.NAME.speak`). Without them, it says the facts
//! that the turn asks for, or all selected facts where a language model words it.
//!
//! Key: none. State: none; the stage counts turns in a row without an answer in the dialogue. It
//! never adds evidence. Except in the prompted form, it words nothing itself: its words are in the
//! evidence or in the configuration.

mod choice;
mod chosen;
mod claims;
mod config;
mod intent;
mod prompted;
mod reading;
mod texts;
mod told;

use std::collections::BTreeSet;
use std::sync::Arc;

use timely::dataflow::StreamVec;
use turnstream_knowledge::Knowledge;
use turnstream_ports::model::reader::{Read, Reading};
use turnstream_schemas::{
    Action, DecisionAnswer, Evidence, Fault, FaultKind, HandOffReason, Stage,
};

use crate::asked_facts::asked_facts;
use crate::flow::{ActionDecision, ChosenPlace, Epoch, TurnInFlight};
use crate::generation::{GenerationConfig, GenerationForm};
use crate::prompted::Prompt;
use crate::response_texts::ResponseTexts;
use crate::sources::{Sources, SpokenFacts};
use crate::stage::{Answer, Asked, Call, Decide, OnFailure, Step, Streams, Without, run};
use crate::stage_config::StageConfig;
use crate::stage_context::StageContext;
use crate::tables::{Tables, missing_id, none_fits};

pub use config::{DecisionConfig, DecisionForm, HandOffConfig};
pub use texts::{DecisionTexts, TextsOfLanguage};

use reading::is_text;

const STAGE: Stage = Stage::Decision;

/// Returns which facts of the graph may be said: all that were selected where the decision is off,
/// else those that [`Sources::spoken_facts`] names.
pub fn spoken_facts(
    config: &DecisionConfig,
    generation: &GenerationConfig,
    sources: &Sources,
) -> SpokenFacts {
    let is_worded = generation.form == GenerationForm::Prompted;
    match config.form {
        DecisionForm::Off => SpokenFacts::Selected,
        form => sources.spoken_facts(is_worded || form == DecisionForm::Prompted),
    }
}

/// Runs the decision over a stream of turns. Returns (turns with what their response does, faults).
/// Turns pass unchanged where it is off.
pub fn decision<'scope>(
    turns: StreamVec<'scope, Epoch, TurnInFlight>,
    config: DecisionConfig,
    facts: SpokenFacts,
    context: &StageContext,
) -> Streams<'scope, TurnInFlight> {
    run(turns, ResponseDecision::new(config, facts, context), &context.runner)
}

/// The stage.
struct ResponseDecision {
    config: DecisionConfig,
    sources: Arc<Sources>,
    tables: Arc<Tables>,
    facts: SpokenFacts,
    knowledge: Knowledge,
    reader: Option<Arc<Read>>,
    response_texts: Arc<ResponseTexts>,
    prompt: Option<Prompt>,
}

/// What the stage decides.
#[derive(Default)]
struct DecidedResponse {
    /// What the response does; `None` if the stage is off.
    decided: Option<ActionDecision>,
    /// The places of the evidence that the response is made from, in its order.
    answers: Vec<usize>,
}

impl DecidedResponse {
    /// Makes a response that does this, without evidence to say.
    fn of(decided: ActionDecision) -> Self {
        Self { decided: Some(decided), answers: Vec::new() }
    }
}

impl ResponseDecision {
    fn new(config: DecisionConfig, facts: SpokenFacts, context: &StageContext) -> Self {
        let is_learned = config.form == DecisionForm::Learned;
        let reader = context.reader.clone().filter(|_| is_learned);
        let prompt = context.prompting.prompt::<DecisionAnswer>(STAGE, config.prompted());
        let (sources, knowledge) = (Arc::clone(&context.sources), context.knowledge.clone());
        let tables = Arc::clone(&context.tables);
        let response_texts = Arc::clone(&context.response_texts);
        Self { config, sources, tables, facts, knowledge, reader, response_texts, prompt }
    }

    /// Hands over, if the utterance calls for it.
    fn handed_over(
        &self,
        turn: &TurnInFlight,
        reading: Option<&Reading>,
    ) -> Option<DecidedResponse> {
        self.handed_over_for(turn, intent::hand_off(turn.context.query(), reading)?)
    }

    /// Hands over for this reason, if the configuration wants that.
    fn handed_over_for(
        &self,
        turn: &TurnInFlight,
        reason: HandOffReason,
    ) -> Option<DecidedResponse> {
        let config = &self.config.hand_off;
        let is_wanted = match reason {
            HandOffReason::Asked => config.asked,
            HandOffReason::Complaint => config.complaint,
            HandOffReason::Safety => config.safety,
            HandOffReason::NothingFound | HandOffReason::Taught => true,
        };
        is_wanted.then(|| self.hand_over(turn, reason))
    }

    fn texts(&self, turn: &TurnInFlight) -> &TextsOfLanguage {
        self.config.texts.of(turn.context.lexicon())
    }

    fn hand_over(&self, turn: &TurnInFlight, reason: HandOffReason) -> DecidedResponse {
        let said = self.texts(turn).hand_off(reason).to_owned();
        let hand_off = Some(reason);
        DecidedResponse::of(ActionDecision {
            hand_off,
            said: Some(said),
            ..ActionDecision::to(Action::HandOff)
        })
    }

    /// Declines, or hands over after too many turns in a row without an answer.
    fn decline(&self, turn: &TurnInFlight) -> DecidedResponse {
        let said = Some(self.texts(turn).decline.clone());
        self.or_hand_over(turn, ActionDecision { said, ..ActionDecision::to(Action::Decline) })
    }

    /// Declines or asks back, or hands over after too many such turns in a row.
    fn or_hand_over(&self, turn: &TurnInFlight, decided: ActionDecision) -> DecidedResponse {
        let most = self.config.hand_off.nothing_found_turns as usize;
        let text = &self.texts(turn).decline;
        let is_nothing = |said: &&str| said == text || self.response_texts.choices(said).is_some();
        let before = turn.context.responses_before().take_while(is_nothing).count();
        if most > 0 && before + 1 >= most {
            return self.hand_over(turn, HandOffReason::NothingFound);
        }
        DecidedResponse::of(decided)
    }

    /// Does what staff taught to do about turns like this one, where no evidence answers them.
    fn taught(&self, turn: &TurnInFlight) -> Option<DecidedResponse> {
        let (action, cosine) = turn.taught.action?;
        let is_near = cosine >= self.config.min_taught_likeness;
        is_near.then(|| match action {
            Action::HandOff => self.hand_over(turn, HandOffReason::Taught),
            Action::Social => DecidedResponse::of(ActionDecision::to(Action::Social)),
            Action::Answer | Action::Ask | Action::Decline => self.decline(turn),
        })
    }

    /// Declines because no table has a row with an id that the turn names, or such rows as it asks for.
    fn of_missing_row(&self, turn: &TurnInFlight) -> Option<DecidedResponse> {
        let query = turn.context.query();
        let texts = self.texts(turn);
        let none_fits = || none_fits(&self.tables, query).then(|| texts.none_fits.clone());
        let id = missing_id(&self.tables, query);
        let said = Some(id.map(|id| texts.no_row(&id)).or_else(none_fits)?);
        Some(DecidedResponse::of(ActionDecision { said, ..ActionDecision::to(Action::Decline) }))
    }

    /// Decides by the relevance of the evidence and the words of the utterance.
    fn by_words(&self, turn: &TurnInFlight) -> DecidedResponse {
        if let Some(verdict) = self.handed_over(turn, None) {
            return verdict;
        }
        if intent::is_small_talk(turn.context.query(), None) {
            return DecidedResponse::of(ActionDecision::to(Action::Social));
        }
        if let Some(verdict) = self.by_table(turn, &[], None).or_else(|| self.of_missing_row(turn))
        {
            return verdict;
        }
        let best = self.read_evidence(turn, is_text, 1).into_iter().next();
        let found = best.filter(|(_, it)| it.relevance.get() >= self.config.min_relevance);
        if let Some((place, _)) = found {
            let decided = Some(ActionDecision::to(Action::Answer));
            return DecidedResponse { decided, answers: vec![place] };
        }
        match self.by_facts(turn) {
            Some(verdict) => verdict,
            // There is nothing but the graph: generation asks back, in words about what the user
            // named.
            None if !self.sources.have_texts() => {
                DecidedResponse::of(ActionDecision::to(Action::Ask))
            }
            None => self.decline(turn),
        }
    }

    /// Names the passages and tables that an answer is made from, if the configuration wants that.
    fn with_sources(
        &self,
        turn: &TurnInFlight,
        decided: ActionDecision,
        answers: &[usize],
    ) -> ActionDecision {
        let is_wanted = self.config.names_sources && decided.action == Action::Answer;
        let Some(said) = decided.said.clone().filter(|_| is_wanted) else { return decided };
        let names: BTreeSet<String> =
            answers.iter().filter_map(|at| source_name(&turn.evidence[*at])).collect();
        if names.is_empty() {
            return decided;
        }
        let names: Vec<String> = names.into_iter().collect();
        let space = if turn.context.lexicon().is_chinese() { "" } else { " " };
        let said = [&*said, &*self.texts(turn).source(&names)].join(space);
        ActionDecision { said: Some(said), ..decided }
    }

    /// Answers from facts of the graph, if there are any that may be said.
    fn by_facts(&self, turn: &TurnInFlight) -> Option<DecidedResponse> {
        let answers = match self.facts {
            SpokenFacts::None => return None,
            SpokenFacts::Selected => {
                let mut selected = turn.evidence.iter().filter(|it| it.selected);
                selected.find(|it| it.fact.is_some())?;
                Vec::new()
            }
            SpokenFacts::AskedFor => {
                let asked = self.knowledge.at(&turn.knowledge, |graph| asked_facts(turn, graph));
                asked.first()?;
                asked
            }
        };
        Some(DecidedResponse { decided: Some(ActionDecision::to(Action::Answer)), answers })
    }
}

impl Decide for ResponseDecision {
    type Turn = TurnInFlight;
    type Decision = DecidedResponse;

    const STAGE: Stage = STAGE;

    fn on_failure(&self, _: &TurnInFlight) -> OnFailure {
        self.config.on_failure
    }

    fn call(&self) -> Option<Call> {
        let reader = self.reader.clone().map(|model| Call::new(model, &self.config.call));
        reader.or_else(|| self.prompt.as_ref().map(Prompt::call))
    }

    fn begin(&self, turn: &TurnInFlight) -> Result<Step<DecidedResponse>, Fault> {
        if self.config.form == DecisionForm::Off {
            return Ok(Step::decided(self.without(turn, Without::Off)));
        }
        if let Some(prompt) = &self.prompt {
            // A user who plainly needs a person need not wait for a model.
            let handed_over = self.handed_over(turn, None);
            return Ok(handed_over.map_or_else(|| prompt.begin(self, turn), Step::decided));
        }
        if self.reader.is_none() {
            return Ok(Step::decided(self.by_words(turn)));
        }
        let chosen = turn.context.chosen.as_ref();
        // For thanks after an answer, the reader would find the same answer again.
        if chosen.is_none() && intent::is_small_talk(turn.context.query(), None) {
            let verdict = self.taught(turn).unwrap_or_else(|| self.by_words(turn));
            return Ok(Step::decided(verdict));
        }
        let cell = chosen.and_then(|it| self.of_chosen_cell(turn, it.name.as_deref()?));
        if let Some(cell) = cell {
            return Ok(Step::decided(cell));
        }
        let (min_precision, lexicon) = (self.config.min_precision, turn.context.lexicon());
        let of_table = choice::of_table(&turn.evidence, min_precision, lexicon);
        let rest = of_table.as_ref().and_then(|it| it.rest);
        let by_names = match &of_table {
            Some(_) if rest.is_some() => None,
            Some(_) => self.by_table(turn, &[], None),
            None if chosen.is_some() => None,
            None => self.of_missing_row(turn),
        };
        if let Some(by_names) = by_names {
            let verdict = self.handed_over(turn, None).or_else(|| self.taught(turn));
            return Ok(Step::decided(verdict.unwrap_or(by_names)));
        }
        let Some(ChosenPlace { name }) = chosen else { return Ok(Step::ask(self.requests(turn))) };
        let of_chosen = name.as_deref().map(|name| self.request_of_chosen(turn, name));
        Ok(of_chosen.map_or_else(|| Step::decided(self.decline(turn)), Step::ask))
    }

    fn read(
        &self,
        turn: &TurnInFlight,
        asked: &Asked,
        answer: Answer,
    ) -> Result<Step<DecidedResponse>, Fault> {
        if self.prompt.is_some() {
            return Prompt::read_by(self.prompt.as_ref(), self, turn, asked, answer);
        }
        let readings: Vec<Reading> = answer.of(STAGE)?;
        let [whole, parts @ ..] = &readings[..] else {
            return Err(Fault::new(STAGE, FaultKind::Unfit, "the reader gave no reading"));
        };
        let chosen = turn.context.chosen.as_ref().and_then(|it| it.name.as_deref());
        Ok(Step::decided(match chosen {
            Some(name) => self.of_chosen(turn, name, whole),
            None => self.by_reading(turn, whole, parts),
        }))
    }

    fn without(&self, turn: &TurnInFlight, why: Without<'_>) -> DecidedResponse {
        match why {
            // A model whose second answer was no better has none: words alone would not either.
            Without::ByRules(Some(asked)) if self.prompt.is_some() && !asked.may_repeat() => {
                self.decline(turn)
            }
            Without::ByRules(_) => self.by_words(turn),
            _ => DecidedResponse::default(),
        }
    }

    /// Puts the evidence of the answer first, and deselects evidence that the response is not made
    /// from: all of it, where the configuration gives the words; passages and rows, where the
    /// response does not answer; facts that may not be said.
    fn write(
        &self,
        turn: &mut TurnInFlight,
        DecidedResponse { decided, answers }: DecidedResponse,
    ) {
        let answered = decided.as_ref().is_none_or(|it| it.action == Action::Answer);
        let is_given = !answered && decided.as_ref().is_some_and(|it| it.said.is_some());
        let speaks = decided.is_none() || self.facts == SpokenFacts::Selected;
        let speaks_answers = self.facts != SpokenFacts::None;
        let decided = decided.map(|it| self.with_sources(turn, it, &answers));
        let pieces = answers.len();
        let chosen = |at: usize| answers.iter().position(|place| *place == at);
        let mut evidence: Vec<(usize, Evidence)> =
            std::mem::take(&mut turn.evidence).into_iter().enumerate().collect();
        evidence.sort_by_key(|(at, _)| chosen(*at).unwrap_or(pieces));
        turn.evidence = evidence
            .into_iter()
            .map(|(at, it)| Evidence { selected: it.selected || chosen(at).is_some(), ..it })
            .collect();
        for (at, evidence) in turn.evidence.iter_mut().enumerate() {
            let is_text = evidence.document.is_some() || evidence.row.is_some();
            let is_used = !is_given && (answered || !is_text);
            let may_be_said = speaks || speaks_answers && at < pieces;
            evidence.selected &= is_used && (may_be_said || evidence.fact.is_none());
        }
        turn.evidence.sort_by_key(|evidence| !evidence.selected);
        turn.decision = decided.map(|it| ActionDecision { pieces, ..it });
    }
}

/// Returns the title of a passage, or the name of a row's table as its source is configured, with
/// spaces for `_` and `-`. Returns `None` if there is none.
fn source_name(evidence: &Evidence) -> Option<String> {
    let title = evidence.document.as_ref().map(|passage| passage.title.clone());
    let table = || evidence.source.as_str().replace(['_', '-'], " ");
    let name = title.or_else(|| evidence.row.is_some().then(table));
    name.filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests;
