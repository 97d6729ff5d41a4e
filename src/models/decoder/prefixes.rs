//! Keeps key-value caches after requests end, for later prompts with the same beginning: the next
//! turn of the conversation, or another conversation under the same instructions.

use super::cache::KeyValues;

/// Kept caches, up to a bound of bytes; the least recently used is dropped first.
pub(crate) struct Prefixes {
    kept: Vec<Kept>,
    bytes: usize,
    bound: usize,
    /// Counts uses, to order them.
    clock: u64,
}

struct Kept {
    tokens: Vec<u32>,
    cache: KeyValues,
    used: u64,
}

impl Prefixes {
    /// Keeps at most `bound` bytes; 0 keeps nothing.
    pub(crate) fn new(bound: usize) -> Self {
        Self { kept: Vec::new(), bytes: 0, bound, clock: 0 }
    }

    /// The bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Finds the longest beginning of `tokens`, among the kept caches and `others`. It excludes the
    /// last token, because the caller wants that token's logits.
    pub(crate) fn find<'a>(
        &mut self,
        tokens: &[u32],
        others: impl Iterator<Item = (&'a [u32], &'a KeyValues)>,
    ) -> Option<KeyValues> {
        let most = tokens.len().saturating_sub(1);
        let shared = |other: &[u32]| common(&tokens[..most], other);
        let other = others.map(|(tokens, cache)| (shared(tokens).min(cache.tokens()), cache));
        let other = other.max_by_key(|(length, _)| *length);
        let kept = self.kept.iter_mut().map(|kept| (shared(&kept.tokens), kept));
        let kept = kept.max_by_key(|(length, kept)| (*length, kept.used));
        let other_length = other.map_or(0, |(length, _)| length);
        self.clock += 1;
        match kept {
            Some((length, kept)) if length > 0 && length >= other_length => {
                kept.used = self.clock;
                Some(kept.cache.prefix(length))
            }
            _ => other.filter(|_| other_length > 0).map(|(length, cache)| cache.prefix(length)),
        }
    }

    /// Keeps the cache of `tokens`, and drops kept caches that are a beginning of it.
    pub(crate) fn keep(&mut self, mut tokens: Vec<u32>, cache: KeyValues) {
        tokens.truncate(cache.tokens());
        let size = cache.bytes();
        if size == 0 || size > self.bound {
            return;
        }
        if self.kept.iter().any(|kept| kept.tokens.starts_with(&tokens)) {
            return;
        }
        self.kept.retain(|kept| !tokens.starts_with(&kept.tokens));
        self.clock += 1;
        self.kept.push(Kept { tokens, cache, used: self.clock });
        self.bytes = self.kept.iter().map(|kept| kept.cache.bytes()).sum();
        while self.bytes > self.bound {
            let oldest = (0..self.kept.len()).min_by_key(|at| self.kept[*at].used);
            let Some(oldest) = oldest else { break };
            self.bytes -= self.kept.swap_remove(oldest).cache.bytes();
        }
    }
}

/// The length of the common beginning.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache whose numbers identify their tokens.
    fn cache(tokens: &[u32]) -> KeyValues {
        let mut cache = KeyValues::new(1, 1);
        for token in tokens {
            cache.push(0, &[*token as f32], &[-(*token as f32)]);
            cache.grow(1);
        }
        cache
    }

    const TOKEN: usize = 8;

    fn found(prefixes: &mut Prefixes, tokens: &[u32]) -> Vec<u32> {
        let found = prefixes.find(tokens, std::iter::empty());
        found.map_or(Vec::new(), |found| found.layer(0).0.iter().map(|key| *key as u32).collect())
    }

    #[test]
    fn the_longest_prefix_is_found_without_the_last_token() {
        let mut prefixes = Prefixes::new(1 << 20);
        prefixes.keep(vec![1, 2, 3, 4], cache(&[1, 2, 3, 4]));
        prefixes.keep(vec![1, 2, 9], cache(&[1, 2, 9]));
        assert_eq!(found(&mut prefixes, &[1, 2, 3, 7]), [1, 2, 3]);
        assert_eq!(found(&mut prefixes, &[1, 2, 3]), [1, 2]);
        assert_eq!(found(&mut prefixes, &[1, 2, 9, 9, 9]), [1, 2, 9]);
        assert!(found(&mut prefixes, &[8, 2]).is_empty());
        assert!(found(&mut prefixes, &[1]).is_empty());
        // An active request has a longer beginning.
        let others = ([1, 2, 3, 4, 5, 6], cache(&[1, 2, 3, 4, 5]));
        let others = std::iter::once((others.0.as_slice(), &others.1));
        assert_eq!(prefixes.find(&[1, 2, 3, 4, 5, 6], others).unwrap().tokens(), 5);
    }

    #[test]
    fn the_least_recently_used_and_prefixes_of_a_kept_prompt_are_dropped() {
        let mut prefixes = Prefixes::new(5 * TOKEN);
        prefixes.keep(vec![1, 2], cache(&[1, 2]));
        prefixes.keep(vec![5, 6], cache(&[5, 6]));
        assert_eq!(found(&mut prefixes, &[1, 2, 3]), [1, 2]);
        prefixes.keep(vec![7, 8], cache(&[7, 8]));
        assert_eq!(prefixes.bytes(), 4 * TOKEN);
        assert!(found(&mut prefixes, &[5, 6, 7]).is_empty());
        assert_eq!(found(&mut prefixes, &[1, 2, 3]), [1, 2]);
        prefixes.keep(vec![1, 2, 3], cache(&[1, 2, 3]));
        assert_eq!(prefixes.bytes(), 5 * TOKEN);
        // Already kept, or too large.
        prefixes.keep(vec![1, 2], cache(&[1, 2]));
        prefixes.keep(vec![9; 6], cache(&[9; 6]));
        assert_eq!(prefixes.bytes(), 5 * TOKEN);
        assert_eq!(Prefixes::new(0).bytes(), 0);
    }
}
