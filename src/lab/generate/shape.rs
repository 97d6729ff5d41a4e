//! The shape of the generated graph: degrees of concepts and frequencies of relations.

/// Concepts of the Open Mind core of ConceptNet by classes of degrees, counted on the English file
/// (87,871 concepts, 296,463 facts). A row per class of the number of facts with the concept as
/// head, a column per class of the number with it as tail. Class 0 is none; class k is the degrees
/// above 2^(k−2) and up to 2^(k−1), so class 1 is one fact.
#[rustfmt::skip]
pub(super) const CONCEPTS_BY_DEGREES: [[u32; 13]; 15] = [
    [0, 43_944, 2_207, 5_520, 3_340, 1_138, 301, 59, 7, 0, 0, 0, 0],
    [15_634, 616, 652, 869, 762, 345, 128, 35, 7, 1, 0, 0, 0],
    [1_043, 428, 292, 376, 328, 189, 95, 26, 3, 0, 0, 0, 0],
    [785, 356, 258, 299, 312, 223, 134, 47, 10, 4, 0, 0, 0],
    [435, 277, 192, 288, 298, 224, 133, 45, 18, 2, 0, 0, 0],
    [403, 203, 129, 209, 281, 248, 176, 93, 29, 7, 2, 0, 0],
    [194, 132, 106, 167, 207, 268, 187, 104, 37, 13, 2, 1, 0],
    [33, 36, 38, 71, 99, 163, 164, 134, 81, 36, 3, 0, 0],
    [7, 8, 13, 16, 79, 183, 172, 156, 78, 23, 3, 0, 0],
    [1, 1, 0, 1, 7, 26, 65, 77, 76, 37, 13, 0, 1],
    [0, 0, 0, 0, 1, 0, 0, 8, 11, 25, 12, 3, 0],
    [0, 0, 1, 0, 0, 1, 0, 0, 2, 3, 1, 1, 0],
    [0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0],
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0],
];

/// The 47 relations of ConceptNet 5.7, with approximate numbers of facts between English concepts.
#[rustfmt::skip]
pub(super) const RELATIONS: [(&str, u32); 47] = [
    ("RelatedTo", 1_703_582), ("FormOf", 378_859), ("DerivedFrom", 325_374),
    ("HasContext", 232_935), ("IsA", 230_137), ("Synonym", 222_156), ("UsedFor", 39_790),
    ("EtymologicallyRelatedTo", 32_075), ("SimilarTo", 30_280), ("AtLocation", 27_797),
    ("HasSubevent", 25_238), ("HasPrerequisite", 22_710), ("CapableOf", 22_677),
    ("Antonym", 19_066), ("Causes", 16_801), ("PartOf", 13_077), ("MannerOf", 12_715),
    ("MotivatedByGoal", 9_489), ("HasProperty", 8_433), ("dbpedia/genre", 6_100),
    ("ReceivesAction", 6_037), ("HasA", 5_545), ("CausesDesire", 4_688),
    ("dbpedia/influencedBy", 4_300), ("HasFirstSubevent", 3_347), ("DistinctFrom", 3_315),
    ("Desires", 3_170), ("NotDesires", 2_886), ("HasLastSubevent", 2_874),
    ("dbpedia/knownFor", 2_200), ("DefinedAs", 2_173), ("InstanceOf", 1_480),
    ("dbpedia/occupation", 1_100), ("dbpedia/product", 900), ("dbpedia/language", 900),
    ("dbpedia/field", 640), ("MadeOf", 545), ("dbpedia/capital", 450), ("Entails", 405),
    ("NotCapableOf", 329), ("NotHasProperty", 327), ("dbpedia/genus", 300),
    ("CreatedBy", 263), ("dbpedia/leader", 84), ("EtymologicallyDerivedFrom", 71),
    ("LocatedNear", 49), ("SymbolOf", 4),
];

/// Weights, with their number per thousand facts.
pub(super) const WEIGHTS: [(f32, u32); 12] = [
    (1.0, 700),
    (2.0, 140),
    (0.5, 70),
    (2.828, 30),
    (3.464, 20),
    (0.25, 10),
    (4.0, 8),
    (4.472, 6),
    (5.292, 5),
    (0.333, 5),
    (6.325, 4),
    (10.198, 2),
];

/// Of 16 concepts in the largest class of a degree, this many have twice the degree: under a power
/// law, a larger graph has larger hubs.
pub(super) const LARGER_OF_16: u64 = 7;

/// Returns the data set and the contributor of a relation's facts.
pub(super) fn dataset(relation: &str) -> (&'static str, &'static str) {
    match relation {
        "IsA" | "PartOf" | "SimilarTo" | "MannerOf" | "Entails" | "MadeOf" => {
            ("/d/wordnet/3.1", "/s/resource/wordnet/rdf/3.1")
        }
        "RelatedTo"
        | "FormOf"
        | "DerivedFrom"
        | "HasContext"
        | "Synonym"
        | "Antonym"
        | "EtymologicallyRelatedTo"
        | "EtymologicallyDerivedFrom" => ("/d/wiktionary/en", "/s/resource/wiktionary/en"),
        name if name.starts_with("dbpedia/") => ("/d/dbpedia/en", "/s/resource/dbpedia/2015/en"),
        _ => ("/d/conceptnet/4/en", "/s/resource/omcs"),
    }
}
