// Package hostile answers every call of a chain wrongly. A chain of checkout, stage,
// publish and cleanup is run by the real worker runtime with the real adapters over
// the memory servers, and between them stands a liar: it gives one call, or every
// call of a kind, an answer of a list that no good server gives.
//
// What a case must come to is in docs/reliability.md, "Hostile servers". It is judged
// by what the memory servers hold, which nobody lies about to the judge.
//
// The package has tests only.
package hostile
