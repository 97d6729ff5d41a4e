//! Trains the regressions that a gate has beside its encoder.

use std::path::Path;

use turnstream_models::gate::ngrams::NgramRegression;

use super::Lesson;
use crate::eval::gate::{GateError, tfidf};

/// The fewest training texts that contain an n-gram of a gate's regression. With 2, as the baseline
/// has it, there are 1.7 times as many and nothing is gained (docs/measurements/gate.md).
const LEAST_TEXTS: u32 = 5;

/// Trains the regression of each data set over the n-grams of its current utterances; `progress` is
/// called after every fit.
///
/// # Errors
/// All turns of a data set are of one class.
pub fn regressions(
    lessons: &[Lesson],
    progress: &dyn Fn(),
) -> Result<Vec<NgramRegression>, GateError> {
    let fitted = lessons.iter().map(|Lesson { train, .. }| {
        let trained = tfidf::train(train, &[], LEAST_TEXTS, Path::new("the data"), progress)?;
        Ok(trained.regression())
    });
    fitted.collect()
}
