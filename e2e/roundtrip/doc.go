// Package roundtrip holds the property that staging is exact: random trees and
// random edits of them, staged, published and checked out again, are byte for
// byte what was on the disk, what lies outside the prefix is untouched, and the
// same tree a second time is a no-op.
//
// The use cases are called directly, on a lakeFS in memory and on the real one. A
// failure prints its seed; PERAGO_TEST_SEED runs it again, and PERAGO_TEST_CASES
// says how many cases to run.
package roundtrip
