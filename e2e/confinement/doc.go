// Package confinement holds that nothing leads the workers out of the workspace
// root, or to what is another's: not the text of an input, not the keys of objects,
// not links that are planted before or while files are staged, checked out and swept.
//
// Each case has files outside the root that hold a known text. They may never turn
// up in a request to lakeFS, an object, a log, an output or a reason; no system call
// may open or change them, which the kernel itself reports where it can; and a
// picture of them before is compared with one after. The same search finds another
// text, planted in the step's own files, in each of these places.
//
// The use cases are the real ones, on a lakeFS in memory. A failure prints its seed;
// PERAGO_TEST_SEED runs it again, and PERAGO_TEST_ROUNDS says how often.
package confinement
