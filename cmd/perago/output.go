package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/term"
)

// The formats of the output.
const (
	formatTable = "table"
	formatPlain = "plain"
	formatJSON  = "json"
)

// output is where and how results are written.
type output struct {
	to     io.Writer
	format string
}

// check settles the format: a table for people, plain rows for what reads them.
func (o *output) check() error {
	switch o.format {
	case "":
		o.format = formatPlain
		if file, ok := o.to.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
			o.format = formatTable
		}
	case formatTable, formatPlain, formatJSON:
	default:
		return fmt.Errorf("--output is %q; it must be %s, %s or %s", o.format, formatTable, formatPlain, formatJSON)
	}
	return nil
}

// rows writes a table with its heading, or the rows alone with a tab between
// their fields. Every row has as many fields as the heading.
func (o *output) rows(heading []string, rows [][]string) error {
	if o.format == formatPlain {
		for _, row := range rows {
			if _, err := fmt.Fprintln(o.to, strings.Join(row, "\t")); err != nil {
				return err
			}
		}
		return nil
	}
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{heading}, rows...) {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		// Empty fields at the end of a row are filled up with blanks.
		if _, err := fmt.Fprintln(o.to, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

func (o *output) json(value any) error {
	encoder := json.NewEncoder(o.to)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
