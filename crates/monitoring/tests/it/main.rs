//! Tests of the configuration of the jobs. The jobs themselves are tested over HTTP, in `wire/prometheus`.

mod configuration;
