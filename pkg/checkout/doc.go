// Package checkout gives a user task its input: it downloads the objects under a
// prefix of the input ref into a directory that nobody has seen before.
//
// The input ref is a commit, so what is downloaded cannot change meanwhile. The
// listing is read whole first: the guardrails are asked about it, and every key
// must have a form on the file system, so that nothing is written for a
// projection that could not be written whole. Object keys come from whoever may
// write the repository; files are made through an os.Root of the new directory,
// each of them exclusively, and what arrived is compared with what lakeFS says it
// holds.
//
// The directory is named by the execution: <root>/<workflow id>/checkout-<task
// id>-<execution id>. Two executions never share one, and its name is given out
// only when it is complete. A directory that could not be completed is removed
// again, as far as that goes; a complete one is the sweep's.
//
// Nothing is written to lakeFS.
package checkout
