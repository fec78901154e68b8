package definition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"perago/pkg/txn"
)

// Kind is what a definition defines.
type Kind string

// The kinds of definition.
const (
	Task     Kind = "task"
	Workflow Kind = "workflow"
)

// Definition is one task or workflow definition as a file holds it.
type Definition struct {
	Kind Kind
	Name string
	// Version is a workflow's, from 1; 0 for a task definition.
	Version int
	// Raw is the definition's JSON object, unchanged.
	Raw json.RawMessage
	// Source names the file, for messages.
	Source string

	// value is Raw decoded, numbers as json.Number.
	value map[string]any
	// at is its place in a file that holds a list, such as [1]; else empty.
	at string
}

// String is the definition as people call it.
func (d Definition) String() string {
	if d.Kind == Workflow {
		return fmt.Sprintf("workflow %s version %d", d.Name, d.Version)
	}
	return fmt.Sprintf("task definition %s", d.Name)
}

// Parse reads the text of one file: a definition, or a list of them as
// Conductor's API takes it. Source names the file in errors, which give the line
// of a syntax error.
func Parse(source string, text []byte) ([]Definition, error) {
	if err := CheckJSON(source, text); err != nil {
		return nil, err
	}
	var raws []json.RawMessage
	trimmed := bytes.TrimSpace(text)
	isList := trimmed[0] == '['
	if isList {
		if err := json.Unmarshal(trimmed, &raws); err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
	} else {
		raws = []json.RawMessage{trimmed}
	}
	var all []Definition
	for i, raw := range raws {
		d, err := parseOne(source, raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		if isList {
			d.at = index("", i)
		}
		all = append(all, d)
	}
	return all, nil
}

func parseOne(source string, raw json.RawMessage) (Definition, error) {
	decoded, err := decode(raw)
	if err != nil {
		return Definition{}, err
	}
	value, ok := decoded.(map[string]any)
	if !ok {
		return Definition{}, errors.New("a definition is a JSON object")
	}
	d := Definition{Raw: raw, Source: source, value: value}
	if d.Name, ok = value["name"].(string); !ok || d.Name == "" {
		return Definition{}, errors.New("a definition has a name")
	}
	if _, ok := value["tasks"]; ok {
		d.Kind = Workflow
		d.Version, err = versionOf(value)
		return d, err
	}
	// Other JSON files have names as well; registering one by mistake would make
	// a task type of it.
	if !slices.ContainsFunc(taskMarks, func(mark string) bool { _, ok := value[mark]; return ok }) {
		return Definition{}, fmt.Errorf("%q is neither a workflow definition (it has no tasks) nor a task definition (it has no retryCount, timeout or ownerEmail)", d.Name)
	}
	d.Kind = Task
	return d, nil
}

// taskMarks are fields of which a task definition has at least one.
var taskMarks = []string{"retryCount", "retryLogic", "timeoutSeconds", "timeoutPolicy", "responseTimeoutSeconds", "ownerEmail"}

func versionOf(workflow map[string]any) (int, error) {
	version, ok := workflow["version"]
	if !ok {
		return 1, nil // as Conductor has it
	}
	number, ok := version.(json.Number)
	if ok {
		if v, err := strconv.Atoi(number.String()); err == nil && v >= 1 {
			return v, nil
		}
	}
	return 0, fmt.Errorf("workflow %v: version is %v; it must be a whole number from 1", workflow["name"], version)
}

// Load reads definitions from files and directories of the operating system. Of
// a directory it reads the .json files directly in it, of which there must be
// one. Two definitions of one kind, name and version are an error.
func Load(paths ...string) ([]Definition, error) {
	var all []Definition
	for _, name := range paths {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		files := []string{name}
		if info.IsDir() {
			if files, err = jsonFiles(os.DirFS(name)); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			for i := range files {
				files[i] = filepath.Join(name, files[i])
			}
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			definitions, err := Parse(file, text)
			if err != nil {
				return nil, err
			}
			all = append(all, definitions...)
		}
	}
	return all, distinct(all)
}

// LoadFS reads every .json file in the root of a file system, such as an
// embedded one. Source begins with the given name.
func LoadFS(name string, files fs.FS) ([]Definition, error) {
	names, err := jsonFiles(files)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var all []Definition
	for _, file := range names {
		text, err := fs.ReadFile(files, file)
		if err != nil {
			return nil, err
		}
		definitions, err := Parse(path.Join(name, file), text)
		if err != nil {
			return nil, err
		}
		all = append(all, definitions...)
	}
	return all, distinct(all)
}

func jsonFiles(files fs.FS) ([]string, error) {
	names, err := fs.Glob(files, "*.json")
	if err == nil && len(names) == 0 {
		err = errors.New("the directory holds no .json file")
	}
	return names, err
}

func distinct(definitions []Definition) error {
	type key struct {
		kind    Kind
		name    string
		version int
	}
	seen := map[key]string{}
	for _, d := range definitions {
		k := key{d.Kind, d.Name, d.Version}
		if before, ok := seen[k]; ok {
			return fmt.Errorf("%s stands in %s and in %s", d, before, d.Source)
		}
		seen[k] = d.Source
	}
	return nil
}

// TaskDefinition is the part of a task definition that perago's rules are about.
func (d Definition) TaskDefinition() (txn.TaskDefinition, error) {
	var read struct {
		Name                   txn.TaskType    `json:"name"`
		RetryCount             *int            `json:"retryCount"`
		TimeoutSeconds         int64           `json:"timeoutSeconds"`
		ResponseTimeoutSeconds *int64          `json:"responseTimeoutSeconds"`
		PollTimeoutSeconds     int64           `json:"pollTimeoutSeconds"`
		TotalTimeoutSeconds    int64           `json:"totalTimeoutSeconds"`
		RetryDelaySeconds      *int64          `json:"retryDelaySeconds"`
		TimeoutPolicy          string          `json:"timeoutPolicy"`
		InputTemplate          json.RawMessage `json:"inputTemplate"`
	}
	if d.Kind != Task {
		return txn.TaskDefinition{}, fmt.Errorf("%s is no task definition", d)
	}
	if err := json.Unmarshal(d.Raw, &read); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return txn.TaskDefinition{}, fmt.Errorf("%s: %s must be a %s, not a JSON %s", d, wrong.Field, strings.NewReplacer("int64", "whole number", "int", "whole number", "string", "text").Replace(wrong.Type.Kind().String()), wrong.Value)
		}
		return txn.TaskDefinition{}, fmt.Errorf("%s: %w", d, err)
	}
	definition := txn.TaskDefinition{
		Name: read.Name, RetryCount: defaultRetryCount, TimeoutSeconds: read.TimeoutSeconds,
		ResponseTimeoutSeconds: defaultResponseTimeout, PollTimeoutSeconds: read.PollTimeoutSeconds,
		TotalTimeoutSeconds: read.TotalTimeoutSeconds, RetryDelaySeconds: defaultRetryDelay,
		TimeoutPolicy: read.TimeoutPolicy, InputTemplate: read.InputTemplate,
	}
	if read.RetryDelaySeconds != nil {
		definition.RetryDelaySeconds = *read.RetryDelaySeconds
	}
	if read.RetryCount != nil {
		definition.RetryCount = *read.RetryCount
	}
	if read.ResponseTimeoutSeconds != nil {
		definition.ResponseTimeoutSeconds = *read.ResponseTimeoutSeconds
	}
	if definition.TimeoutPolicy == "" {
		definition.TimeoutPolicy = defaultTimeoutPolicy
	}
	return definition, nil
}

// Check holds a task definition of one of perago's types to the rules its worker
// goes by: a worker does not poll a type whose definition breaks them. Other
// definitions pass.
func (d Definition) Check() error {
	name := txn.TaskType(d.Name)
	if d.Kind != Task || !ours(name) {
		return nil
	}
	definition, err := d.TaskDefinition()
	if err != nil {
		return err
	}
	if name.IsPublish() {
		_, err = txn.CheckPublishDefinition(definition)
		return err
	}
	return txn.CheckTaskDefinition(definition)
}

func ours(name txn.TaskType) bool {
	return name.IsCheckout() || name.IsStage() || name.IsPublish() || name.IsCleanup()
}

// decode reads one JSON value with its numbers as they are written.
func decode(raw []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errors.New("more than one JSON value")
	}
	return value, nil
}
