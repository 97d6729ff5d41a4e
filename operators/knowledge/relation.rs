//! The meaning of each relation to the flow, and the words that speak it.

/// The use of a relation for a demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RelationKind {
    /// The tail is the purpose of the head, or is wanted.
    Goal,
    /// The head causes the tail.
    Cause,
    /// The tail must exist or happen before the head.
    Prerequisite,
    /// The tail happens during the head.
    Subevent,
    /// The head can do or undergo the tail.
    Ability,
    /// The head is a kind or an instance of the tail.
    Taxonomy,
    /// The head is a part, a whole or a material of the tail.
    Part,
    /// The head is at or near the tail.
    Location,
    /// The tail describes the head.
    Property,
    /// Head and tail have similar or opposite meanings.
    Likeness,
    /// Anything else.
    Other,
}

/// The inflection of one end of a spoken fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Unchanged.
    Plain,
    /// A verb becomes its gerund: "waking up".
    Gerund,
    /// The verb of a phrase becomes its gerund; a single word stays: "wasting paper", "light".
    GerundPhrase,
    /// A verb gets its "to": "to wake up".
    Infinitive,
    /// The first word becomes its past participle: "written by".
    Participle,
    /// A verb before a function word becomes its past participle: "found in", but "open".
    ParticiplePhrase,
}

/// A relation of a graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Relation<'g> {
    /// Its name, such as `UsedFor` or `NotDesires`.
    pub name: &'g str,
    /// The use of the relation.
    pub kind: RelationKind,
    /// Whether the relation negates (`Not…`): all its facts are negated.
    pub negative: bool,
    /// The words between head and tail of a positive fact.
    pub affirms: &'g str,
    /// The words between head and tail of a negated fact.
    pub denies: &'g str,
    pub(crate) head: Form,
    pub(crate) tail: Form,
}

/// A relation as a graph stores it.
#[derive(Clone, Debug)]
pub(crate) struct RelationEntry {
    name: String,
    kind: RelationKind,
    negative: bool,
    affirms: String,
    denies: String,
    head: Form,
    tail: Form,
}

impl RelationEntry {
    /// The entry of a relation by name. The words of an unknown relation's name speak it.
    pub(crate) fn new(name: &str) -> Self {
        let base = positive_name(name);
        let negative = base.is_some();
        let base = base.unwrap_or(name);
        if let Some(&(_, kind, affirms, denies, head, tail)) =
            KNOWN.iter().find(|known| known.0 == base)
        {
            let (affirms, denies) = (affirms.to_owned(), denies.to_owned());
            return Self { name: name.to_owned(), kind, negative, affirms, denies, head, tail };
        }
        let words = words_of(base);
        Self {
            name: name.to_owned(),
            kind: RelationKind::Other,
            negative,
            affirms: format!("stands in the relation \"{words}\" to"),
            denies: format!("does not stand in the relation \"{words}\" to"),
            head: Form::Plain,
            tail: Form::Plain,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn view(&self) -> Relation<'_> {
        Relation {
            name: &self.name,
            kind: self.kind,
            negative: self.negative,
            affirms: &self.affirms,
            denies: &self.denies,
            head: self.head,
            tail: self.tail,
        }
    }
}

/// `NotDesires` → `Desires`; `None` if the relation does not negate.
pub(crate) fn positive_name(name: &str) -> Option<&str> {
    name.strip_prefix("Not").filter(|rest| rest.starts_with(|first: char| first.is_uppercase()))
}

/// `LocatedNear` → "located near".
fn words_of(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

type Known = (&'static str, RelationKind, &'static str, &'static str, Form, Form);

/// The relations of ConceptNet 4, ConceptNet-100K and ConceptNet 5.
#[rustfmt::skip]
const KNOWN: &[Known] = {
    use Form::{Gerund, GerundPhrase, Infinitive, Participle, ParticiplePhrase, Plain};
    use RelationKind::{
        Ability, Cause, Goal, Likeness, Location, Other, Part, Prerequisite, Property, Subevent, Taxonomy,
    };
    &[
        ("Antonym", Likeness, "is the opposite of", "is not the opposite of", Plain, Plain),
        ("AtLocation", Location, "is found at", "is not found at", Plain, Plain),
        ("CapableOf", Ability, "can", "cannot", Plain, Plain),
        ("Causes", Cause, "causes", "does not cause", Gerund, Gerund),
        ("CausesDesire", Cause, "makes one want", "does not make one want", Gerund, Infinitive),
        ("ConceptuallyRelatedTo", Other, "is related to", "is not related to", Plain, Plain),
        ("CreatedBy", Cause, "is created by", "is not created by", Plain, Gerund),
        ("DefinedAs", Taxonomy, "is defined as", "is not defined as", Plain, Plain),
        ("DerivedFrom", Other, "is derived from", "is not derived from", Plain, Plain),
        ("DesireOf", Goal, "is a desire of", "is not a desire of", Gerund, Plain),
        ("Desires", Goal, "wants", "does not want", Plain, Infinitive),
        ("DistinctFrom", Likeness, "differs from", "does not differ from", Plain, Plain),
        ("Entails", Cause, "entails", "does not entail", Gerund, Gerund),
        ("EtymologicallyDerivedFrom", Other, "comes from the word", "does not come from the word", Plain, Plain),
        ("EtymologicallyRelatedTo", Other, "shares its origin with", "does not share its origin with", Plain, Plain),
        ("FormOf", Other, "is a form of", "is not a form of", Plain, Plain),
        ("HasA", Part, "has", "does not have", Plain, Plain),
        ("HasContext", Other, "is spoken of in", "is not spoken of in", Plain, Plain),
        ("HasFirstSubevent", Subevent, "begins with", "does not begin with", Gerund, Gerund),
        ("HasLastSubevent", Subevent, "ends with", "does not end with", Gerund, Gerund),
        ("HasPainCharacter", Property, "comes with a pain that is", "does not come with a pain that is", Plain, Plain),
        ("HasPainIntensity", Property, "comes with a pain of intensity", "does not come with a pain of intensity", Plain, Plain),
        ("HasPrerequisite", Prerequisite, "requires", "does not require", Gerund, Gerund),
        ("HasProperty", Property, "is", "is not", Gerund, ParticiplePhrase),
        ("HasSubevent", Subevent, "involves", "does not involve", Gerund, Gerund),
        ("InheritsFrom", Taxonomy, "inherits from", "does not inherit from", Plain, Plain),
        ("InstanceOf", Taxonomy, "is an instance of", "is not an instance of", Plain, Plain),
        ("IsA", Taxonomy, "is a kind of", "is not a kind of", GerundPhrase, Plain),
        ("LocatedNear", Location, "is near", "is not near", Plain, Plain),
        ("LocationOfAction", Location, "is where one is", "is not where one is", Plain, Gerund),
        ("MadeOf", Part, "is made of", "is not made of", Plain, Plain),
        ("MannerOf", Taxonomy, "is a way of", "is not a way of", Gerund, Gerund),
        ("MotivatedByGoal", Goal, "is done for the sake of", "is not done for the sake of", Gerund, Gerund),
        ("ObstructedBy", Cause, "is obstructed by", "is not obstructed by", Gerund, Gerund),
        ("PartOf", Part, "is part of", "is not part of", Plain, Plain),
        ("ReceivesAction", Ability, "can be", "cannot be", Plain, Participle),
        ("RelatedTo", Other, "is related to", "is not related to", Plain, Plain),
        ("SimilarSize", Likeness, "is about the size of", "is not about the size of", Plain, Plain),
        ("SimilarTo", Likeness, "is similar to", "is not similar to", Plain, Plain),
        ("SymbolOf", Other, "is a symbol of", "is not a symbol of", Plain, Plain),
        ("Synonym", Likeness, "means the same as", "does not mean the same as", Plain, Plain),
        ("UsedFor", Goal, "is used for", "is not used for", Plain, Gerund),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denying_relation_keeps_its_name_and_borrows_the_words() {
        let entry = RelationEntry::new("NotDesires");
        let relation = entry.view();
        assert_eq!((relation.name, relation.negative), ("NotDesires", true));
        assert_eq!((relation.kind, relation.denies), (RelationKind::Goal, "does not want"));
        assert_eq!(positive_name("Notable"), None, "a word that only begins like one");
    }

    #[test]
    fn an_unknown_relation_is_spoken_by_its_words() {
        let entry = RelationEntry::new("OwnedByPerson");
        assert_eq!(entry.view().affirms, "stands in the relation \"owned by person\" to");
        assert!(entry.view().denies.contains("not"));
    }

    #[test]
    fn every_known_relation_denies_with_a_negation_and_affirms_without_one() {
        for (name, _, affirms, denies, ..) in KNOWN {
            let negation = |words: &str| words.contains("not");
            assert!(negation(denies) && !negation(affirms), "{name}: {affirms:?} / {denies:?}");
        }
    }
}
