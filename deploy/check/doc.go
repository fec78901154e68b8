// Package check holds what is in deploy to the code and to the tools that will
// read it: the chart is rendered and decoded, the rules are tried, the units, the
// compose file and the container file are read, the binaries are started from
// nothing. It is a module of its own: what it takes to render a chart is no
// dependency of the product.
package check
