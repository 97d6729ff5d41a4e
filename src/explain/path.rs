//! Shows the path of a response as a tree, with a branch for each stage in the order of the flow.

use std::collections::BTreeMap;

use turnstream_schemas::{
    Action, Degraded, Evicted, EvictionReason, EvidenceId, Fault, Fingerprint, FingerprintPart,
    HandOffReason, KnowledgeState, ModelUsed, RecalledTurn, RecalledVia, RefinementRound, Response,
    Score, Stage,
};

use super::asked::Asked;
use super::page::{Ink, Text};
use super::spoken::Spoken;
use super::tree::Tree;
use super::wording::confidence_kind;

mod demand;
mod evidence;

/// Context for showing a response, beyond the record itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown<'a> {
    /// Utterances of the conversation, as far as known: records refer to turns by id.
    pub spoken: Option<&'a Spoken>,
    /// The gate's configured threshold, which no record contains.
    pub threshold: Option<f64>,
    /// The most pieces of unselected evidence to show; the rest are counted. `None` shows all.
    pub not_selected: Option<usize>,
    /// The questions to models to show.
    pub asked: &'a [Asked],
}

/// Makes the tree of a response's whole path.
pub fn tree(response: &Response, shown: &Shown<'_>) -> Tree {
    let nothing = Spoken::default();
    let spoken = shown.spoken.unwrap_or(&nothing);
    let head = Text::new(Ink::Label, "response ")
        .and(Ink::Strong, response.response_id.as_str())
        .and(Ink::Quiet, whose(response));
    let prompts = shown.asked.iter().map(|asked| asked.tree(response));
    let prompts = Tree::leaf(Text::new(Ink::Label, "prompts")).with(prompts);
    let head = Tree::leaf(head).and(Text::new(Ink::Good, &*response.text));
    if response.brief {
        let branches = [
            said(response, spoken),
            decision(response),
            Some(answer(response)),
            response.fingerprint.as_ref().map(made_by),
            degraded(&response.degraded),
            extra(response),
            Some(left_out()),
        ];
        return head.with(branches.into_iter().flatten());
    }
    let branches = [
        said(response, spoken),
        Some(history(response, spoken)),
        Some(gate(response, shown.threshold)),
        demand::tree(response, spoken),
        Some(plan(response)),
        evidence::tree(&response.evidence, shown.not_selected, &response.models),
        decision(response),
        refinement(&response.refinement),
        Some(answer(response)),
        evicted(&response.evicted, spoken),
        Some(knowledge(&response.knowledge)),
        response.fingerprint.as_ref().map(made_by),
        degraded(&response.degraded),
        time(&response.timings_us),
        extra(response),
        (!prompts.is_leaf()).then_some(prompts),
    ];
    head.with(branches.into_iter().flatten())
}

/// The turn and conversation that the response answers.
fn whose(response: &Response) -> String {
    let conversation = &response.conversation_id;
    let tenant = response.tenant_id.as_ref().map(|tenant| format!(" of tenant {tenant}"));
    let user = response.user_id.as_ref().map(|user| format!(", user {user}"));
    let (tenant, user) = (tenant.unwrap_or_default(), user.unwrap_or_default());
    let (turn, input) = (&response.turn_id, &response.input);
    format!(" to turn {turn} of conversation {conversation}{tenant}{user}, input {input}")
}

fn said(response: &Response, spoken: &Spoken) -> Option<Tree> {
    let words = spoken.words(&response.turn_id);
    let text = Text::new(Ink::Label, "turn ").and(Ink::Strong, words);
    (!words.is_empty()).then(|| Tree::leaf(text))
}

fn decision(response: &Response) -> Option<Tree> {
    let (ink, what) = match response.action? {
        Action::Answer => (Ink::Good, "answer"),
        Action::Ask => (Ink::Careful, "ask back"),
        Action::Decline => (Ink::Careful, "decline"),
        Action::HandOff => (Ink::Careful, "hand over to a person"),
        Action::Social => (Ink::Good, "be social"),
    };
    let why = response.hand_off.map(|reason| match reason {
        HandOffReason::Asked => ", who was asked for",
        HandOffReason::Complaint => ", for a complaint",
        HandOffReason::Safety => ", for people may be in danger",
        HandOffReason::Taught => ", as staff taught",
        HandOffReason::NothingFound => ", since nothing was found again and again",
    });
    let precision = response.answer_precision.map(|precision| {
        let percent = (precision.get() * 100.0).round();
        format!(": of 100 such answers {percent} were right on development data")
    });
    let text = Text::new(Ink::Label, "decision ").and(ink, what);
    let text = text.and(Ink::Plain, why.unwrap_or_default());
    Some(Tree::leaf(text.and(Ink::Quiet, precision.unwrap_or_default())))
}

fn history(response: &Response, spoken: &Spoken) -> Tree {
    let recalled = response.history.iter().map(|turn| recalled(turn, spoken));
    let entries = match response.history.len() {
        0 => "nothing is recalled".to_owned(),
        1 => "1 entry is recalled".to_owned(),
        entries => format!("{entries} entries are recalled"),
    };
    let completed = response.query_reconstructed.as_ref().map(|query| {
        Tree::leaf(Text::new(Ink::Quiet, "the turn completed: ").and(Ink::Plain, query))
    });
    let text = Text::new(Ink::Label, "history ").and(Ink::Plain, entries);
    Tree::leaf(text).with(recalled).with(completed)
}

fn recalled(turn: &RecalledTurn, spoken: &Spoken) -> Tree {
    let via = match turn.via {
        RecalledVia::Recent => "recent",
        RecalledVia::Relevance => "relevant",
        RecalledVia::Cluster => "of the matching cluster",
        RecalledVia::Chain => "on the matching chain of thought",
    };
    let text = Text::new(Ink::Plain, spoken.label(&turn.turn_id))
        .and(Ink::Quiet, format!(" weight {:.2}, {via}", turn.weight.get()))
        .and(Ink::Plain, quoted(spoken.words(&turn.turn_id)));
    Tree::leaf(text)
}

fn gate(response: &Response, threshold: Option<f64>) -> Tree {
    let gate = &response.gate;
    let decision = match gate.retrieve {
        true => Text::new(Ink::Good, "retrieve"),
        false => Text::new(Ink::Careful, "no retrieval"),
    };
    let threshold = match (gate.threshold, threshold) {
        (Some(least), _) => Some(format!(", threshold {:.2}", least.get())),
        // Older records do not contain it.
        (None, least) => least.map(|least| format!(", threshold {least:.2} as configured")),
    };
    let failed = response.is_without(Stage::Gate);
    let by = match (response.models.get(&Stage::Gate), failed, gate.features.is_empty()) {
        (Some(model), ..) => format!("decided {}", by_model(model)),
        (None, true, true) => "decided by nobody, since the stage failed".to_owned(),
        (None, true, false) => "decided by features, in the failed model's place".to_owned(),
        (None, false, _) => "decided by features".to_owned(),
    };
    let score = format!(": score {:.2}{}, ", gate.score.get(), threshold.unwrap_or_default());
    let text = Text::new(Ink::Label, "gate ").then(decision).and(Ink::Quiet, score + &by);
    let mut features: Vec<_> = gate.features.iter().collect();
    features.sort_by(|a, b| b.1.get().abs().total_cmp(&a.1.get().abs()));
    let features = features.into_iter().map(|(name, part)| {
        Text::new(Ink::Plain, glued(&format!("{} {:+.2}", name.replace('_', " "), part.get())))
    });
    let features = Text::joined(features, ", ");
    let below = (!features.is_empty()).then(|| Tree::leaf(features));
    Tree::leaf(text).with(below)
}

fn plan(response: &Response) -> Tree {
    let sources: Vec<&str> = response.plan.0.iter().map(|source| source.as_str()).collect();
    let text = match sources.as_slice() {
        [] => Text::new(Ink::Careful, "no source is asked"),
        sources => Text::new(Ink::Plain, sources.join(", ")),
    };
    Tree::leaf(Text::new(Ink::Label, "plan ").then(text))
}

/// The discarded drafts, each with the scores of its evidence.
fn refinement(rounds: &[RefinementRound]) -> Option<Tree> {
    let below = rounds.iter().map(|round| {
        let ids = |ids: &[EvidenceId]| {
            let ids: Vec<&str> = ids.iter().map(|id| id.0.as_str()).collect();
            if ids.is_empty() { "nothing".to_owned() } else { ids.join(", ") }
        };
        let (dropped, added) = (ids(&round.dropped), ids(&round.added));
        let text = Text::new(Ink::Careful, format!("draft {} discarded", round.round))
            .and(Ink::Plain, quoted(&round.text))
            .and(Ink::Quiet, format!(": {dropped} out, {added} in"));
        Tree::leaf(text).with(round.evidence.iter().map(|evidence| {
            let relevance = evidence.relevance.map_or(1.0, Score::get);
            let (consistency, score) = (evidence.consistency.get(), evidence.score.get());
            let product =
                format!(" {score:.2} = relevance {relevance:.2} × consistency {consistency:.2}");
            Tree::leaf(Text::new(Ink::Plain, &*evidence.id.0).and(Ink::Quiet, product))
        }))
    });
    let head = Text::new(Ink::Label, "refinement ")
        .and(Ink::Plain, format!("drafted again {}", times(rounds.len())));
    (!rounds.is_empty()).then(|| Tree::leaf(head).with(below))
}

fn times(times: usize) -> String {
    if times == 1 { "once".to_owned() } else { format!("{times} times") }
}

fn answer(response: &Response) -> Tree {
    let model = match &response.model.prompt_hash {
        Some(_) => by_model(&response.model),
        None => format!("by {}", response.model.name),
    };
    let mut text = Text::new(Ink::Label, "answer ").and(Ink::Plain, model);
    if let Some(confidence) = response.confidence {
        let kind = confidence_kind(confidence.kind);
        text = text.and(Ink::Quiet, format!(", confidence {:.2} ({kind})", confidence.value));
    }
    let from = response.citations.iter().map(|of| match &of.title {
        Some(title) => format!("from {} “{title}”", of.id.0),
        None => format!("from {}", of.id.0),
    });
    from.fold(Tree::leaf(text), |tree, from| tree.and(Text::new(Ink::Quiet, from)))
}

/// The branch in place of the path, for a record that leaves it out.
fn left_out() -> Tree {
    let what = "no record here says how it came about: the response has no trace in it, and its \
                trace record was not written, or is gone";
    Tree::leaf(Text::new(Ink::Careful, what))
}

fn evicted(evicted: &[Evicted], spoken: &Spoken) -> Option<Tree> {
    let below = evicted.iter().map(|gone| {
        let reason = match gone.reason {
            EvictionReason::Capacity => "the history is full",
            EvictionReason::Age => "too old",
            EvictionReason::Forget => "forgotten on request",
        };
        let scores = format!(
            " weight {:.2} (relevance {:.2}, recency {:.2}), rank {}: {reason}",
            gone.weight.get(),
            gone.relevance.get(),
            gone.recency.get(),
            gone.rank,
        );
        let text = Text::new(Ink::Careful, spoken.label(&gone.turn_id)).and(Ink::Quiet, scores);
        Tree::leaf(text.and(Ink::Plain, quoted(spoken.words(&gone.turn_id))))
    });
    let head = Text::new(Ink::Label, "evicted ")
        .and(Ink::Plain, format!("{} from the history", evicted.len()));
    (!evicted.is_empty()).then(|| Tree::leaf(head).with(below))
}

fn knowledge(state: &KnowledgeState) -> Tree {
    let offsets: Vec<String> =
        state.offsets.iter().map(|(partition, next)| format!("{partition}: {next}")).collect();
    let changes = match offsets.as_slice() {
        [] => ", no changes".to_owned(),
        offsets => format!(", changes before offset by partition {}", offsets.join(", ")),
    };
    let text = Text::new(Ink::Label, "knowledge ")
        .and(Ink::Plain, format!("snapshot {}", state.snapshot))
        .and(Ink::Quiet, changes);
    Tree::leaf(text)
}

fn made_by(fingerprint: &Fingerprint) -> Tree {
    let Fingerprint { digest, parts } = fingerprint;
    let version = parts.get(&FingerprintPart::Version);
    let version = version.map_or(String::new(), |it| format!(", version {it}"));
    let text = Text::new(Ink::Label, "made by ")
        .and(Ink::Plain, format!("fingerprint {digest}"))
        .and(Ink::Quiet, version);
    Tree::leaf(text)
}

fn degraded(stages: &[Degraded]) -> Option<Tree> {
    let names: Vec<&str> = stages.iter().map(|degraded| degraded.stage().name()).collect();
    let text = Text::new(Ink::Label, "degraded ")
        .and(Ink::Careful, names.join(", "))
        .and(Ink::Quiet, ": failed, and the turn went on without");
    let below = stages.iter().filter_map(Degraded::fault).map(|fault| {
        let Fault { stage, kind, reason } = fault;
        let head = Text::new(Ink::Careful, stage.name());
        Tree::leaf(head.and(Ink::Quiet, format!(" {}: ", kind.name())).and(Ink::Plain, reason))
    });
    (!stages.is_empty()).then(|| Tree::leaf(text).with(below))
}

fn time(timings_us: &BTreeMap<Stage, u64>) -> Option<Tree> {
    let total: u64 = timings_us.values().sum();
    let stages = timings_us
        .iter()
        .map(|(stage, time)| Text::new(Ink::Quiet, glued(&format!("{stage} {time}"))));
    let stages = Text::joined(stages, ", ");
    let text = Text::new(Ink::Label, "time ").and(Ink::Plain, format!("{total} µs: "));
    (!timings_us.is_empty()).then(|| Tree::leaf(text.then(stages)))
}

fn extra(response: &Response) -> Option<Tree> {
    let json = |fields| serde_json::to_string(fields).unwrap_or_default();
    let below = [("metadata", &response.metadata), ("extra", &response.extra)]
        .into_iter()
        .filter(|(_, fields)| !fields.is_empty())
        .map(|(name, fields)| {
            Tree::leaf(Text::new(Ink::Quiet, format!("{name} ")).and(Ink::Plain, json(fields)))
        });
    let tree = Tree::leaf(Text::new(Ink::Label, "from the turn")).with(below);
    (!tree.is_leaf()).then_some(tree)
}

/// The model of a stage, with its prompt.
fn by_model(model: &ModelUsed) -> String {
    let prompt = model.prompt_hash.as_ref().map(|hash| format!(", prompt {hash}"));
    format!("by model {}{}", model.name, prompt.unwrap_or_default())
}

/// The model of a stage as a suffix to the stage's name, if a model decided.
fn decided(models: &BTreeMap<Stage, ModelUsed>, stage: Stage) -> String {
    models.get(&stage).map_or(String::new(), |model| format!(" decided {}", by_model(model)))
}

/// Joins words so that they stay on one line.
fn glued(words: &str) -> String {
    words.replace(' ', "\u{a0}")
}

/// Quotes an utterance; empty if it is unknown.
fn quoted(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!(" \"{words}\"") }
}

#[cfg(test)]
mod tests;
