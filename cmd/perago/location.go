package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"perago/pkg/definition"
	"perago/pkg/lakefs"
	"perago/pkg/stage"
	"perago/pkg/txn"
)

// transferConfig is what the commands that move files read of the environment.
type transferConfig struct {
	LakeFS   lakefs.Config
	Transfer transfer
}

// transfer is of the stage worker's configuration what goes for a person, too.
type transfer struct {
	Concurrency int    `env:"PERAGO_UPLOAD_CONCURRENCY,default=128" desc:"Uploads or downloads at once; a file to upload of more than 256 KiB counts for several, up to an eighth of them"`
	RateLimit   int64  `env:"PERAGO_UPLOAD_RATE_LIMIT,default=0" desc:"Bytes per second that all uploads together may send; 0 is no limit"`
	Presigned   string `env:"PERAGO_UPLOAD_PRESIGNED,default=auto" desc:"auto uploads to the object store itself, by pre-signed URLs, where lakeFS offers them and the store can be reached; never uploads through lakeFS alone"`
}

func (t transfer) Validate() []error {
	return stage.Config{UploadConcurrency: t.Concurrency, UploadRateLimit: t.RateLimit, UploadPresigned: t.Presigned, AllowedImports: []string{"*"}}.Validate()
}

// location is what lakefs://repository/reference/prefix names.
type location struct {
	repository txn.Repository
	reference  string
	prefix     txn.Prefix
}

// parseLocation reads an address; form says how it is written. The whole repository
// is meant only where root says so: a variable of a script may have been empty.
func parseLocation(address, form string, root bool) (location, error) {
	rest, ok := strings.CutPrefix(address, "lakefs://")
	repository, rest, _ := strings.Cut(rest, "/")
	reference, path, _ := strings.Cut(rest, "/")
	if !ok || repository == "" || reference == "" {
		return location{}, fmt.Errorf("%q is not an address in lakeFS; write %s", address, form)
	}
	switch whole := txn.IsRoot(path); {
	case whole && !root:
		return location{}, fmt.Errorf("%q names no prefix, so it is the whole repository; name a prefix, or give --root if the whole repository is meant", address)
	case !whole && root:
		return location{}, fmt.Errorf("--root is given, but %q names a prefix; leave one of the two out", address)
	}
	prefix, err := txn.ParseInputPrefix(path, root)
	if err != nil {
		return location{}, fmt.Errorf("%q: %w", address, err)
	}
	return location{repository: txn.Repository(repository), reference: reference, prefix: prefix}, nil
}

// guardrails reads a file of guardrails, or what is in its place: a list as a
// task's input has it.
func guardrails(from string) ([]txn.Guardrail, error) {
	raw, err := rawGuardrails(from)
	if raw == nil || err != nil {
		return nil, err
	}
	return txn.ParseGuardrails(raw)
}

// rawGuardrails is the text of guardrails, checked; nil when none are given.
func rawGuardrails(from string) (json.RawMessage, error) {
	if from == "" {
		return nil, nil
	}
	raw, where := []byte(from), "--guardrails"
	if !strings.HasPrefix(strings.TrimSpace(from), "[") {
		var err error
		if raw, err = os.ReadFile(from); err != nil {
			return nil, err
		}
		where = from
	}
	if err := definition.CheckJSON(where, raw); err != nil {
		return nil, fmt.Errorf("%w; guardrails are a list, such as [{\"require_file\": \"metrics.json\"}]", err)
	}
	if _, err := txn.ParseGuardrails(raw); err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	return raw, nil
}
