use candle_core::quantized::GgmlDType;

use super::cache::KeyValues;
use super::network::{DecoderNetwork, Piece};
use super::*;

mod answers;
mod constrained;
mod damaged;
pub(crate) mod tiny;
mod vocabularies;

use tiny::DecoderReference;

fn network(config: &LocalConfig) -> DecoderNetwork {
    files::open(config).unwrap().network
}

/// The logits after the last token, with the tokens run in pieces of at most `chunk`.
fn logits(network: &DecoderNetwork, tokens: &[u32], chunk: usize) -> Vec<f32> {
    let mut cache = network.empty_cache();
    let mut last = Vec::new();
    for tokens in tokens.chunks(chunk) {
        let piece = Piece::next(tokens, &mut cache, true);
        last = network.forward(&mut [piece]).unwrap().remove(0);
    }
    last
}

/// The largest difference from the outputs of transformers, over all lengths.
fn difference(name: &str, network: &DecoderNetwork) -> f32 {
    let figures = DecoderReference::read();
    let mut largest = 0.0_f32;
    for (length, expected) in figures.lengths.iter().zip(&figures.of[name].logits) {
        let ours = logits(network, &figures.tokens[..*length], usize::MAX);
        for (token, expected) in figures.shown.iter().zip(expected) {
            largest = largest.max((ours[*token] - expected).abs());
        }
    }
    largest
}

#[test]
fn logits_are_those_of_transformers_from_safetensors() {
    for name in tiny::ALL {
        let (_folder, config) = tiny::folder(name);
        let difference = difference(name, &network(&config));
        assert!(difference < 2e-5, "{name}: {difference}");
    }
}

#[test]
fn logits_are_those_of_transformers_from_gguf() {
    // GGUF has no key for the divisor of Gemma 2's scores; it follows from the size.
    for name in tiny::ALL.into_iter().filter(|name| *name != "gemma2") {
        let (_folder, config) = tiny::gguf(name, GgmlDType::F32);
        let difference = difference(name, &network(&config));
        assert!(difference < 2e-5, "{name}: {difference}");
    }
}

/// The bits of the logits.
fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

/// Runs a check on networks whose rows must not depend on each other.
fn each_network(check: impl Fn(&str, &DecoderNetwork)) {
    for name in ["llama", "mistral", "gemma3", "qwen3"] {
        let (_folder, config) = tiny::folder(name);
        check(name, &network(&config));
    }
    let (_folder, config) = tiny::gguf("wide", GgmlDType::Q8_0);
    check("wide, Q8_0", &network(&config));
}

#[test]
fn a_batch_of_sequences_at_different_places_is_each_alone() {
    let tokens = DecoderReference::read().tokens;
    each_network(|name, network| {
        let begun = |length: usize| {
            let mut cache = network.empty_cache();
            let piece = Piece::next(&tokens[..length], &mut cache, false);
            network.forward(&mut [piece]).unwrap();
            cache
        };
        let mut caches: [KeyValues; 3] = [begun(17), network.empty_cache(), begun(3)];
        // One token of a sequence, the whole of another, and a part of a third.
        let parts = [17..18, 0..30, 3..12];
        let mut pieces: Vec<Piece<'_>> = caches
            .iter_mut()
            .zip(&parts)
            .map(|(cache, part)| Piece::next(&tokens[part.clone()], cache, part.end != 30))
            .collect();
        let together = network.forward(&mut pieces).unwrap();
        assert_eq!(bits(&together[0]), bits(&logits(network, &tokens[..18], 18)), "{name}");
        assert_eq!(bits(&together[1]), bits(&logits(network, &tokens[..12], 12)), "{name}");
        assert_eq!((together.len(), caches[1].tokens()), (2, 30));
    });
}

#[test]
fn a_prompt_in_parts_is_the_whole_prompt() {
    let tokens = DecoderReference::read().tokens;
    each_network(|name, network| {
        let whole = bits(&logits(network, &tokens, tokens.len()));
        for chunk in [1, 7, 16] {
            assert_eq!(bits(&logits(network, &tokens, chunk)), whole, "{name}, {chunk}");
        }
    });
}

#[test]
fn what_is_kept_of_another_prompt_gives_the_same_logits() {
    let tokens = DecoderReference::read().tokens;
    each_network(|name, network| {
        let mut other = tokens.clone();
        other[25..].reverse();
        let mut cache = network.empty_cache();
        let piece = Piece::next(&other, &mut cache, false);
        network.forward(&mut [piece]).unwrap();
        let mut kept = cache.prefix(25);
        let piece = Piece::next(&tokens[25..], &mut kept, true);
        let again = network.forward(&mut [piece]).unwrap().remove(0);
        assert_eq!(bits(&again), bits(&logits(network, &tokens, 40)), "{name}");
        assert_eq!(cache.tokens(), 40, "the other one is as it was");
    });
}

#[test]
fn a_network_whose_rows_are_sent_to_a_device_is_the_same_network() {
    let tokens = DecoderReference::read().tokens;
    // The CPU stands in for a device: transfers take the same path.
    let sent = |config: &LocalConfig| network(config).on(&candle_core::Device::Cpu).unwrap();
    for name in tiny::ALL {
        let (_folder, config) = tiny::folder(name);
        let difference = difference(name, &sent(&config));
        assert!(difference < 2e-5, "{name}: {difference}");
    }
    let (_folder, config) = tiny::gguf("wide", GgmlDType::Q8_0);
    let here = logits(&network(&config), &tokens, 16);
    assert_eq!(bits(&logits(&sent(&config), &tokens, 16)), bits(&here));
}

#[test]
fn a_device_that_the_program_was_built_without_is_refused() {
    let config = LocalConfig { path: "model.gguf".into(), ..LocalConfig::default() };
    assert_eq!(config.check(), Ok(()));
    let config = LocalConfig { products_on: ProductsOn::Cuda, ..config };
    match cfg!(feature = "cuda") {
        true => assert_eq!(config.check(), Ok(())),
        false => assert!(config.check().unwrap_err().problem.contains("--features cuda")),
    }
}

#[test]
fn weights_that_are_quantised_give_nearly_the_same_logits() {
    for (quantised, name) in
        [(GgmlDType::Q8_0, "wide"), (GgmlDType::Q8_0, "qwen3"), (GgmlDType::F16, "llama")]
    {
        let (_folder, config) = tiny::gguf(name, quantised);
        let difference = difference(name, &network(&config));
        assert!(difference > 1e-5 && difference < 0.5, "{name}: {difference}");
    }
    let (_folder, config) = tiny::folder("wide");
    let config = LocalConfig { quantize: Quantize::Q8Zero, ..config };
    let difference = difference("wide", &network(&config));
    assert!(difference > 1e-5 && difference < 0.5, "{difference}");
}

#[test]
fn a_token_that_the_model_does_not_have_is_an_error() {
    let (_folder, config) = tiny::folder("llama");
    let network = network(&config);
    let mut cache = network.empty_cache();
    let piece = Piece::next(&[320], &mut cache, true);
    assert!(network.forward(&mut [piece]).is_err());
}
