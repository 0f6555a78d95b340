package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"

	"github.com/BurntSushi/toml"
)

// systemConfig is the machine's pinfold.toml. Files in the directory
// pinfold.toml.d beside it, whose names end in .toml, are read after it in the
// order of their names: what is read last holds.
const systemConfig = "/etc/pinfold/pinfold.toml"

// userConfig returns the pinfold.toml of the calling user.
func userConfig() (string, error) {
	policy, err := userPolicy()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(policy), filepath.Base(systemConfig)), nil
}

// readConfig sets what the file and its drop-ins say, and returns the names of
// those that there are. All that is wrong is reported. A missing file is an error
// when it is required.
func readConfig(o *options, file string, required bool) (read []string, err error) {
	names, err := dropIns(file)
	if err != nil {
		return nil, err
	}
	var wrong []error
	for i, name := range append([]string{file}, names...) {
		text, err := readOwned(name, "configuration")
		switch {
		case err == nil:
			read = append(read, name)
			wrong = append(wrong, setAll(o, name, text)...)
		case i > 0 || required || !errors.Is(err, fs.ErrNotExist):
			wrong = append(wrong, err)
		}
	}
	return read, errors.Join(wrong...)
}

// dropIns returns the files beside the file that are read after it.
func dropIns(file string) ([]string, error) {
	dir := file + ".d"
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".toml" && e.Name()[0] != '.' {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	return names, nil
}

// setAll sets what the text says.
func setAll(o *options, name, text string) (wrong []error) {
	var tree map[string]any
	meta, err := toml.Decode(text, &tree)
	if err != nil {
		if syntax, ok := errors.AsType[toml.ParseError](err); ok {
			err = fmt.Errorf("%s:%d:%d: %s", name, syntax.Position.Line, syntax.Position.Col, syntax.Message)
		}
		return []error{err}
	}
	at := func(key toml.Key, err error) {
		line, column := placeOf(text, key)
		wrong = append(wrong, fmt.Errorf("%s:%d:%d: %w", name, line, column, err))
	}
	for _, key := range meta.Keys() {
		value, isTable := lookUp(tree, key)
		s := settingOf(key.String())
		switch {
		case s != nil:
			if err := s.set(o, value); err != nil {
				at(key, err)
			}
		case isTable && isTableOf(key.String()):
		case len(key) > 1 && settingOf(key[:len(key)-1].String()) != nil: // within a value that is wrong
		default:
			at(key, fmt.Errorf("unknown key %q: %s", key.String(), similar(key.String())))
		}
	}
	return wrong
}

// lookUp returns the value at the key, and whether it is a table.
func lookUp(tree map[string]any, key toml.Key) (value any, isTable bool) {
	value = tree
	for _, name := range key {
		table, _ := value.(map[string]any)
		value = table[name]
	}
	_, isTable = value.(map[string]any)
	return value, isTable
}

// isTableOf reports whether some key lies in the table.
func isTableOf(table string) bool {
	return slices.ContainsFunc(settings, func(s setting) bool { return filepath.Dir(keyPath(s.key)) == keyPath(table) })
}

// keyPath writes a key as a path.
func keyPath(key string) string {
	b := []byte(key)
	for i, c := range b {
		if c == '.' {
			b[i] = '/'
		}
	}
	return string(b)
}

// A nowhere can hold no value: decoding into it fails, and the error says where.
type nowhere struct{}

// UnmarshalTOML implements [toml.Unmarshaler].
func (nowhere) UnmarshalTOML(any) error { return errors.New("no value can be kept here") }

// placeOf returns line and column of the key's value in the text, 1 and 1 when
// they cannot be told.
func placeOf(text string, key toml.Key) (line, column int) {
	typ := reflect.TypeFor[nowhere]()
	for _, name := range slices.Backward(key) {
		typ = reflect.StructOf([]reflect.StructField{{Name: "X", Type: typ, Tag: reflect.StructTag("toml:" + strconv.Quote(name))}})
	}
	_, err := toml.Decode(text, reflect.New(typ).Interface())
	if at, ok := errors.AsType[toml.ParseError](err); ok && at.Position.Line > 0 {
		return at.Position.Line, at.Position.Col
	}
	return 1, 1
}
