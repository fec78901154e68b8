package txn

import (
	"encoding/json"
	"errors"
	"testing"
)

func TestParseImportSource(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]ImportSource{
		"s3://bucket/path/": "s3://bucket/path/", "s3://bucket/path": "s3://bucket/path/", "s3://bucket": "s3://bucket/",
		"gs://bucket/a b/%41+é/": "gs://bucket/a b/%41+é/", "https://account.blob.core.windows.net/container/x": "https://account.blob.core.windows.net/container/x/",
		"local:///srv/import/x/": "local:///srv/import/x/", "local://name/x": "local://name/x/", "s3://bucket/..a/": "s3://bucket/..a/",
		"s3://bucket/%2e%2ea/%252e%252e/100%/": "s3://bucket/%2e%2ea/%252e%252e/100%/", "s3://bucket/a%2Fb/%252e%252e/": "s3://bucket/a%2Fb/%252e%252e/",
	} {
		if got, err := ParseImportSource("f", text); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "bucket/path", "/srv/x/", "s3:bucket", "s3://", "s3:///", "S3://bucket/", "://bucket/", "3s://bucket/", "s3://bucket/a//b/", "s3://bucket/../other/", "s3://bucket/./a/",
		"s3://bucket/a/..", "s3://key:secret@bucket/a/", "s3://bucket/a/?versionId=1", "s3://bucket/a/#x", "s3://bucket/a\nb/", "s3://bucket/\x00/", "s3://bucket/\xff/", "local:////etc/", "s3://bucket/a//",
		"s3://bucket/a/%2e%2e/b/", "s3://bucket/a/.%2E/", "s3://bucket/a/%2e/b/", "s3://bucket/a%2F/b/", "local:///srv/import/..%2f..%2fetc/", "s3://bucket/a%00b/", "s3://bucket/%2e%2e/",
		"s3://bucket/..", "s3://bucket/a/../..", "local:///srv/..", "local:///", "s3://../", "s3://./", "local:///./",
	} {
		got, err := ParseImportSource("f", text)
		var terminal *TerminalError
		if !errors.As(err, &terminal) || terminal.Field != "f" {
			t.Errorf("%q gives %q, %v; want a terminal error at f", text, got, err)
		}
	}
}

func TestImportList(t *testing.T) {
	t.Parallel()
	list, err := ParseImportList([]string{" s3://bucket/a ", "", "local:///srv/x/"})
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[ImportSource]bool{
		"s3://bucket/a/": true, "s3://bucket/a/b/": true, "s3://bucket/ab/": false, "s3://bucket/": false, "gs://bucket/a/": false, "local:///srv/x/y/": true,
	} {
		if list.Allows(source) != want {
			t.Errorf("%s: %v, want %v", source, !want, want)
		}
	}
	all, err := ParseImportList([]string{"*"})
	if err != nil || !all.Allows("s3://any/thing/") {
		t.Errorf("%v, %v", all, err)
	}
	none, err := ParseImportList([]string{"none"})
	if err != nil || none.Allows("s3://any/thing/") || ImportList(nil).Allows("s3://any/thing/") {
		t.Errorf("%v, %v", none, err)
	}
	if _, err := ParseImportList([]string{"bucket"}); err == nil {
		t.Error("bucket was taken")
	}
}

func TestStageInputOfAnImport(t *testing.T) {
	t.Parallel()
	input, err := ParseStageInput(json.RawMessage(`{"workspace": {"repository": "lake", "branch": "main", "ref_type": "commit", "ref": "`+someCommit+`"},
		"prefix": "models", "source": {"import": "s3://bucket/run-1"}}`), everything)
	if err != nil || input.Import != "s3://bucket/run-1/" || input.Directory != "" || input.Prefix != "models/" {
		t.Errorf("%+v, %v", input, err)
	}
}
