package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/sethvargo/go-envconfig"

	"perago/pkg/credential"
)

// Lookup is an environment: the value of a variable and whether it is set.
// os.LookupEnv is one.
type Lookup func(name string) (value string, ok bool)

// Variable describes one variable of a configuration, for -h and the documents.
type Variable struct {
	Name string
	// Default is the value when the variable is not set; empty for none.
	Default     string
	Description string
	Required    bool
	// Secret values are never shown.
	Secret bool
	// File says that NAME_FILE may name a file that holds the value.
	File bool
	// Renewed says that the file is read again when a server refuses the value.
	Renewed bool
}

// Error is every fault of a configuration at once. Its text names the
// variables and no secret's value.
type Error struct{ Faults []error }

func (e *Error) Error() string {
	text := fmt.Sprintf("%d faults in the configuration:", len(e.Faults))
	if len(e.Faults) == 1 {
		text = "a fault in the configuration:"
	}
	for _, fault := range e.Faults {
		text += "\n  " + fault.Error()
	}
	return text
}

// Unwrap gives errors.Is and errors.As the faults.
func (e *Error) Unwrap() []error { return e.Faults }

// Variables lists the variables of configurations: structs, or pointers to them,
// whose fields have the tags env (as go-envconfig reads it) and desc. Structs in
// them are walked too.
func Variables(configurations ...any) []Variable {
	var all []Variable
	for _, configuration := range configurations {
		t := reflect.TypeOf(configuration)
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		walk(reflect.New(t).Elem(), func(f leaf) { all = append(all, f.Variable) }, nil)
	}
	return all
}

// Read fills configurations, given as pointers to structs, from an
// environment, and returns the values of the secrets. Every fault there is comes
// in one *Error: missing and malformed values, placeholders, and what the
// structs' Validate() []error report. A variable that is set to nothing counts
// as not set. A secret NAME, and what else is a credential.Value, can stand in a
// file named by NAME_FILE.
func Read(lookup Lookup, configurations ...any) (secrets []string, err error) {
	r := reader{lookup: lookup, faulty: map[string]bool{}}
	for _, configuration := range configurations {
		walk(reflect.ValueOf(configuration).Elem(), r.read, r.validate)
	}
	if len(r.faults) > 0 {
		return r.secrets, &Error{Faults: r.faults}
	}
	return r.secrets, nil
}

// leaf is one field that a variable fills.
type leaf struct {
	Variable
	field reflect.StructField
	value reflect.Value
}

// walk visits the variables of a struct in their order, and each struct after
// its own.
func walk(s reflect.Value, visit func(leaf), leave func(reflect.Value)) {
	for i := range s.NumField() {
		field, value := s.Type().Field(i), s.Field(i)
		tag, tagged := field.Tag.Lookup("env")
		if !tagged && field.IsExported() && value.Kind() == reflect.Struct {
			walk(value, visit, leave)
			continue
		}
		if !tagged {
			continue
		}
		variable := parseTag(tag, field.Tag)
		variable.Renewed = field.Type == reflect.TypeFor[credential.Value]()
		variable.File = variable.Secret || variable.Renewed
		visit(leaf{Variable: variable, field: field, value: value})
	}
	if leave != nil {
		leave(s)
	}
}

// parseTag reads what the documents need of an env tag; go-envconfig reads it
// again for the value.
func parseTag(tag string, all reflect.StructTag) Variable {
	name, options, _ := strings.Cut(tag, ",")
	variable := Variable{Name: strings.TrimSpace(name), Description: all.Get("desc")}
	for options != "" {
		option, rest, _ := strings.Cut(options, ",")
		option = strings.TrimLeft(option, " ")
		if strings.HasPrefix(option, "default=") {
			// A default is the rest of the tag, commas and all.
			variable.Default = strings.TrimPrefix(strings.TrimLeft(options, " "), "default=")
			break
		}
		variable.Required = variable.Required || strings.TrimSpace(option) == "required"
		options = rest
	}
	switch secret, said := all.Lookup("secret"); {
	case said:
		variable.Secret = secret == "true"
	default:
		variable.Secret = isSecretName(variable.Name)
	}
	return variable
}

// isSecretName goes by the name, so that a secret somebody adds is kept from
// logs even if its field says nothing.
func isSecretName(name string) bool {
	for _, word := range []string{"SECRET", "PASSWORD", "TOKEN"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// reader collects the faults and secrets of one reading.
type reader struct {
	lookup Lookup
	// faulty are the variables that have a fault already.
	faulty  map[string]bool
	faults  []error
	secrets []string
}

func (r *reader) fault(name, format string, arguments ...any) {
	r.faulty[name] = true
	r.faults = append(r.faults, fmt.Errorf("%s %s", name, fmt.Sprintf(format, arguments...)))
}

// read fills one field. Each is given to go-envconfig in a struct of its own,
// because it stops at the first error.
func (r *reader) read(f leaf) {
	value, set := r.get(f.Variable)
	if r.faulty[f.Name] {
		return
	}
	raw := value.Reveal()
	if f.Secret && set {
		r.secrets = append(r.secrets, raw)
	}
	if strings.Contains(strings.ToLower(raw), credential.Placeholder) {
		r.fault(f.Name, "still holds the placeholder %s: %s", credential.Placeholder, f.Description)
		return
	}
	field := f.field
	field.Anonymous, field.PkgPath = false, ""
	single := reflect.New(reflect.StructOf([]reflect.StructField{field}))
	err := envconfig.ProcessWith(context.Background(), &envconfig.Config{
		Target: single.Interface(),
		Lookuper: envconfig.LookuperFunc(func(name string) (string, bool) {
			if name == f.Name {
				return raw, set
			}
			value, ok := r.lookup(name)
			return value, ok && value != ""
		}),
	})
	switch {
	case errors.Is(err, envconfig.ErrMissingRequired):
		r.fault(f.Name, "is not set: %s", f.Description)
	case err != nil && f.Secret:
		r.fault(f.Name, "is malformed")
	case err != nil && set:
		r.fault(f.Name, "is %q; it must be %s", raw, expected(f.value, err))
	case err != nil:
		// The default or the tag itself is wrong: a fault of the program.
		r.fault(f.Name, "cannot be read: %v", err)
	default:
		f.value.Set(single.Elem().Field(0))
		if renewed, ok := f.value.Addr().Interface().(*credential.Value); ok && set {
			// With the name of its file, if it has one.
			*renewed = value
		}
	}
}

// get is a variable's value; from its file when that is named.
func (r *reader) get(variable Variable) (credential.Value, bool) {
	value, ok := r.lookup(variable.Name)
	ok = ok && value != ""
	file := variable.Name + "_FILE"
	path, named := r.lookup(file)
	switch {
	case !variable.File || !named || path == "":
		return credential.New(value), ok
	case ok:
		r.fault(variable.Name, "and %s are both set; set one of them", file)
		return credential.Value{}, false
	}
	read, err := credential.Read(file, path)
	if err != nil {
		r.faults = append(r.faults, err)
		r.faulty[file], r.faulty[variable.Name] = true, true
		return credential.Value{}, false
	}
	return read, true
}

// validate adds what a struct says about itself, but nothing about a variable
// that has a fault already: it would only be about the value's absence.
func (r *reader) validate(s reflect.Value) {
	validator, ok := s.Addr().Interface().(interface{ Validate() []error })
	if !ok {
		return
	}
	for _, fault := range validator.Validate() {
		name, _, _ := strings.Cut(fault.Error(), " ")
		if !r.faulty[strings.TrimSuffix(name, ":")] {
			r.faults = append(r.faults, fault)
		}
	}
}

// expected says in words what a value must be.
func expected(value reflect.Value, err error) string {
	switch value.Interface().(type) {
	case time.Duration:
		return "a duration such as 500ms, 30s or 24h"
	case slog.Level:
		return "debug, info, warn or error"
	}
	switch value.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number, 0 or more"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	}
	return "something else: " + err.Error()
}
