package txn

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// left are texts of prefixes in which an expression had no value, in both forms
// that Conductor gives it.
var left = map[string]string{
	"": "is the root", "/": "is the root",
	"data//": "has an empty segment", "data//x": "has an empty segment", "data//x/": "has an empty segment", "//": "has an empty segment", "//x": "has an empty segment",
	"null": "has the segment null", "null/": "has the segment null", "data/null": "has the segment null", "data/null/x": "has the segment null", "null/x": "has the segment null",
	"day=": `"day=" without a value`, "data/day=/": `"day=" without a value`, "x=/y": `"x=" without a value`, "=": `"=" without a value`,
	"data/day=null": `"day=null" without a value`, "day=null/x": `"day=null" without a value`, "a=b=": `"a=b=" without a value`,
}

// meant are prefixes that look like those and are none.
var meant = map[string]Prefix{
	"data/": "data/", "data": "data/", "nullable": "nullable/", "null.d/x": "null.d/x/", "data/NULL": "data/NULL/", "day=1": "day=1/", "a=b=c/": "a=b=c/", "=x": "=x/", "day=nulls": "day=nulls/",
}

func stageText(prefix, more string) json.RawMessage {
	return json.RawMessage(`{"workspace": ` + workspaceText + `, "prefix": ` + string(encodeText(prefix)) + `, "source": {"directory": "/data/w/t"}` + more + `}`)
}

func checkoutText(prefix, more string) json.RawMessage {
	return json.RawMessage(`{"workspace": ` + workspaceText + `, "prefix": ` + string(encodeText(prefix)) + more + `}`)
}

func encodeText(s string) []byte {
	raw, _ := json.Marshal(s)
	return raw
}

// A part of a prefix that came out of an expression is never widened in silence:
// what an expression without a value leaves behind is refused, in the stage and in
// the checkout.
func TestInputPrefix_RefusesWhatAnEmptyExpressionLeaves(t *testing.T) {
	t.Parallel()
	stage := func(prefix, more string) (Prefix, error) {
		input, err := ParseStageInput(stageText(prefix, more), everything)
		return input.Prefix, err
	}
	checkout := func(prefix, more string) (Prefix, error) {
		input, err := ParseCheckoutInput(checkoutText(prefix, more), everything)
		return input.Prefix, err
	}
	for name, parse := range map[string]func(string, string) (Prefix, error){"stage": stage, "checkout": checkout} {
		for _, text := range slices.Sorted(maps.Keys(left)) {
			_, err := parse(text, "")
			wantTerminal(t, name+" of "+text, err, "prefix", left[text])
		}
		for text, want := range meant {
			if got, err := parse(text, ""); err != nil || got != want {
				t.Errorf("%s of %q: %q, %v; want %q", name, text, got, err, want)
			}
		}
		for _, text := range []string{"", "/"} {
			if got, err := parse(text, `, "root": true`); err != nil || got != "" {
				t.Errorf("%s of the root that is asked for as %q: %q, %v", name, text, got, err)
			}
			_, err := parse(text, `, "root": false`)
			wantTerminal(t, name+" of a root that is not meant", err, "prefix", "is the root")
		}
		for root, sentence := range map[string]string{`"yes"`: "must be true or false", "null": "must be true or false", "true": `the prefix is "data/"`} {
			_, err := parse("data/", `, "root": `+root)
			wantTerminal(t, name+" with the root "+root, err, "root", sentence)
		}
	}
}

// The same for an import, a directory and the names of the workspace.
func TestInput_RefusesWhatAnEmptyExpressionLeavesElsewhere(t *testing.T) {
	t.Parallel()
	for _, uri := range []string{
		"s3://bucket/runs//", "s3://bucket//x/", "s3:///runs/", "s3://null/runs/", "s3://bucket/null", "s3://bucket/null/", "s3://bucket/day=/", "s3://bucket/day=/x", "s3://bucket/day=null/",
		"s3://bucket/day%3D/", "local:///null/x/", "local:///srv/day=/", "gs://bucket/runs/null/x/",
	} {
		_, err := ParseStageInput(json.RawMessage(`{"workspace": `+workspaceText+`, "prefix": "p/", "source": {"import": "`+uri+`"}}`), everything)
		wantTerminal(t, uri, err, "source.import", "")
	}
	for _, uri := range []string{"s3://bucket/runs/", "s3://bucket", "s3://bucket/day=1/nullable", "local:///srv/x/", "local://name/x"} {
		if _, err := ParseStageInput(json.RawMessage(`{"workspace": `+workspaceText+`, "prefix": "p/", "source": {"import": "`+uri+`"}}`), everything); err != nil {
			t.Errorf("%s: %v", uri, err)
		}
	}
	for directory, sentence := range map[string]string{
		"/data/w/t//": "empty", "/data/w//t": "empty", "/data/w/null": "the segment null", "/data/w/null/out": "the segment null",
		"/data/w/t/day=": "without a value", "/data/w/t/day=null/x": "without a value",
	} {
		_, err := SourceDirectory("/data", "w", directory)
		wantTerminal(t, directory, err, "source.directory", sentence)
	}
	// The root is the operator's and the id Conductor's.
	if got, err := SourceDirectory("/data/null/x=", "w", "/data/null/x=/w/t"); err != nil || got != "w/t" {
		t.Errorf("%q, %v", got, err)
	}
	for _, field := range []string{"repository", "branch"} {
		_, err := ParseStageInput(edit(t, string(stageText("p", "")), map[string]any{"workspace." + field: "null"}), everything)
		wantTerminal(t, field, err, "workspace."+field, "is the word null")
	}
}

// The check is about inputs: what stands in the lake already stays readable.
func TestRecord_KeepsAnOddPrefix(t *testing.T) {
	t.Parallel()
	for text := range left {
		var prefix Prefix
		err := prefix.UnmarshalText([]byte(text))
		if odd := strings.Contains(text, "//"); (err != nil) != odd {
			t.Errorf("%q: %q, %v", text, prefix, err)
		}
	}
	key := NewLogicalTaskKey(testWorkflow, "train_stage", 0)
	for _, prefix := range []Prefix{"", "null/", "day=/"} {
		staged := testStaged(t, key)
		staged.Prefix = prefix
		raw, err := json.Marshal(map[string]any{"workspace": Workspace{Repository: "lake", Branch: "main", RefType: "commit", Ref: id("A")}, "staged": staged})
		if err != nil {
			t.Fatal(err)
		}
		if input, err := ParsePublishInput(raw, publishDefinition(45, 0, nil), everything); err != nil || input.Staged.Prefix != prefix {
			t.Errorf("publish of %q: %+v, %v", prefix, input.Staged, err)
		}
		if input, err := ParseCleanupInput(raw, everything); err != nil || input.Staged.Prefix != prefix {
			t.Errorf("cleanup of %q: %+v, %v", prefix, input, err)
		}
	}
}
