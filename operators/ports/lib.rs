//! The ports: small traits, with their types, for what stages and the engine need from outside.
//!
//! Nothing here knows candle, arroy, Kafka or timely. Stages ask through [`model`], [`index`] and
//! [`documents`], and evict idle scopes into a [`cache`]. The crates that implement these ports do
//! not depend on the stages, so they are not rebuilt when a stage changes. Beside the ports are
//! agreements between both sides: the [`partitioner`] of keys, the containment of [`panics`], the
//! definition of [`secret`] values, the [`remedy`] in an error message, the [`script`] of a text,
//! the limits of a stage's configuration ([`refused`]), the [cache folder](cache_folder), and the
//! faults of the crash simulation ([`broken`]).

pub mod broken;
pub mod cache;
pub mod cache_folder;
pub mod documents;
pub mod index;
pub mod model;
pub mod panics;
pub mod partitioner;
pub mod refused;
pub mod remedy;
pub mod script;
pub mod secret;
