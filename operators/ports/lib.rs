//! What stages and the engine need from outside: small traits, and their types.
//!
//! Nothing here knows candle, arroy, Kafka or timely. Stages ask through [`model`], [`index`] and
//! [`documents`], and let go of idle scopes into a [`cache`]; the crates that implement these need
//! not wait for the stages, and are not built again where one of those changes. Beside the ports
//! lies what both sides must agree on: the [`partitioner`] of keys, [`panics`] and who contains
//! them, which values are [`secret`], how an error tells its [`remedy`], which [`form`] a
//! stage can have, where the [cache folder](cache_folder) lies, and the faults of the crash simulation
//! ([`broken`]).

pub mod broken;
pub mod cache;
pub mod cache_folder;
pub mod documents;
pub mod form;
pub mod index;
pub mod model;
pub mod panics;
pub mod partitioner;
pub mod remedy;
pub mod secret;
