// Package doctor says what is wrong with an installation, and what to do about
// it: two servers, the definitions, and the branches that are published to.
//
// Gather reads through ports and changes nothing; what could not be read is a
// fact as well. Diagnose is a pure function of the facts. A check that could not
// be made is a finding of its own and never counts as healthy.
//
// The policies are the least that a worker's key must be allowed. Whether a key
// is allowed it is asked of lakeFS action by action, with requests that name what
// is not there: lakeFS looks at the permission first.
package doctor
