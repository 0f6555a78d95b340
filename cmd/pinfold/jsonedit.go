package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tailscale/hujson"
)

// addToArray returns the JSON document, which may have comments and trailing
// commas, with the entry at the end of the array that the names lead to.
// Whatever of the way is missing is made. All else stays byte for byte.
func addToArray(doc []byte, names []string, entry any) ([]byte, error) {
	root, err := hujson.Parse(doc)
	if err != nil {
		return nil, err
	}
	at, depth := &root, 0
	for ; depth < len(names); depth++ {
		object, ok := at.Value.(*hujson.Object)
		if !ok {
			return nil, fmt.Errorf("%s is no object", strings.Join(names[:depth], "."))
		}
		next := member(object, names[depth])
		if next == nil {
			break
		}
		at = next
	}
	if depth < len(names) {
		value := any([]any{entry})
		for i := len(names) - 1; i > depth; i-- {
			value = object{names[i]: value}
		}
		err = insert(&root, at, names[depth], value)
		return root.Pack(), err
	}
	if _, ok := at.Value.(*hujson.Array); !ok {
		return nil, fmt.Errorf("%s is no array", strings.Join(names, "."))
	}
	err = insert(&root, at, "", entry)
	return root.Pack(), err
}

// removeFromArray returns the document without the entries of the array for
// which ours reports true, and without what holds nothing then on the way there.
// It reports whether there were any.
func removeFromArray(doc []byte, names []string, ours func(entry string) bool) ([]byte, bool, error) {
	if len(bytes.TrimSpace(doc)) == 0 {
		return doc, false, nil
	}
	root, err := hujson.Parse(doc)
	if err != nil {
		return nil, false, err
	}
	way := []*hujson.Value{&root}
	for _, name := range names {
		object, ok := way[len(way)-1].Value.(*hujson.Object)
		if !ok {
			return doc, false, nil
		}
		next := member(object, name)
		if next == nil {
			return doc, false, nil
		}
		way = append(way, next)
	}
	array, ok := way[len(way)-1].Value.(*hujson.Array)
	if !ok {
		return doc, false, nil
	}
	found := false
	for i := len(array.Elements) - 1; i >= 0; i-- {
		if ours(array.Elements[i].String()) {
			found = true
			remove(way[len(way)-1], i)
		}
	}
	if !found {
		return doc, false, nil
	}
	for i := len(names) - 1; i >= 0 && isEmpty(way[i+1]); i-- {
		remove(way[i], indexOf(way[i].Value.(*hujson.Object), names[i]))
	}
	return root.Pack(), true, nil
}

func isEmpty(v *hujson.Value) bool {
	switch c := v.Value.(type) {
	case *hujson.Object:
		return len(c.Members) == 0 && len(bytes.TrimSpace(c.AfterExtra)) == 0
	case *hujson.Array:
		return len(c.Elements) == 0 && len(bytes.TrimSpace(c.AfterExtra)) == 0
	}
	return false
}

// member returns the value of the object's member, or nil.
func member(o *hujson.Object, name string) *hujson.Value {
	if i := indexOf(o, name); i >= 0 {
		return &o.Members[i].Value
	}
	return nil
}

// indexOf returns the index of the object's member, the last of that name as
// JavaScript reads it, or -1.
func indexOf(o *hujson.Object, name string) int {
	for i := len(o.Members) - 1; i >= 0; i-- {
		if o.Members[i].Name.Value.(hujson.Literal).String() == name {
			return i
		}
	}
	return -1
}

// A slot is a member of an object, or an element of an array, as far as its
// layout goes.
type slot struct {
	before *hujson.Extra // before the name, or the element
	after  *hujson.Extra // behind the value; nil when no comma follows, on the last one
}

// slots returns the slots of a container, and what stands before its end.
func slots(container *hujson.Value) (list []slot, end *hujson.Extra) {
	switch c := container.Value.(type) {
	case *hujson.Object:
		for i := range c.Members {
			list = append(list, slot{&c.Members[i].Name.BeforeExtra, &c.Members[i].Value.AfterExtra})
		}
		end = &c.AfterExtra
	case *hujson.Array:
		for i := range c.Elements {
			list = append(list, slot{&c.Elements[i].BeforeExtra, &c.Elements[i].AfterExtra})
		}
		end = &c.AfterExtra
	}
	return list, end
}

// insert adds a value as the last of the container, under the name when that is
// an object, laid out as its neighbours are.
func insert(root, container *hujson.Value, name string, value any) error {
	list, end := slots(container)
	comments, space := split(*end)
	newline := "\n"
	if bytes.Contains(root.Pack(), []byte("\r\n")) {
		newline = "\r\n"
	}
	added := hujson.Value{}
	var lead string
	if n := len(list); n > 0 {
		lead = leadOf(*list[n-1].before)
		added.AfterExtra = *list[n-1].after // the comma, or none
		if added.AfterExtra != nil {
			added.AfterExtra = hujson.Extra{}
		}
	} else {
		outer := indentOf(root, container)
		lead = newline + outer + unit(root)
		if !strings.Contains(space, "\n") {
			space = newline + outer
		}
	}
	if strings.Contains(comments, "//") && !strings.Contains(lead, "\n") {
		lead = newline
	}
	data, err := json.Marshal(value)
	if i := strings.LastIndexByte(lead, '\n'); i >= 0 {
		data, err = json.MarshalIndent(value, lead[i+1:], unit(root))
		data = bytes.ReplaceAll(data, []byte("\n"), []byte(newline))
	}
	if err != nil {
		return err
	}
	parsed, err := hujson.Parse(data)
	if err != nil {
		return err
	}
	added.Value = parsed.Value
	*end = hujson.Extra(space)
	switch c := container.Value.(type) {
	case *hujson.Object:
		added.BeforeExtra = hujson.Extra(" ")
		c.Members = append(c.Members, hujson.ObjectMember{
			Name: hujson.Value{BeforeExtra: hujson.Extra(comments + lead), Value: hujson.String(name)}, Value: added})
	case *hujson.Array:
		added.BeforeExtra = hujson.Extra(comments + lead)
		c.Elements = append(c.Elements, added)
	}
	return nil
}

// remove takes the slot at index i away as insert made it: comments before it
// stay.
func remove(container *hujson.Value, i int) {
	list, end := slots(container)
	comments, _ := split(*list[i].before)
	last := i == len(list)-1
	switch {
	case !last:
		*list[i+1].before = append(hujson.Extra(comments), *list[i+1].before...)
	case i > 0:
		*end = append(hujson.Extra(comments), *end...)
		if *list[i].after != nil && *list[i-1].after == nil {
			*list[i-1].after = hujson.Extra{}
		} else if *list[i].after == nil && len(*list[i-1].after) == 0 {
			*list[i-1].after = nil
		}
	case comments != "":
		*end = append(hujson.Extra(comments), *end...)
	default:
		*end = nil
	}
	switch c := container.Value.(type) {
	case *hujson.Object:
		c.Members = append(c.Members[:i], c.Members[i+1:]...)
	case *hujson.Array:
		c.Elements = append(c.Elements[:i], c.Elements[i+1:]...)
	}
}

// split returns the comments with all before them, and the white space behind.
func split(extra hujson.Extra) (comments, space string) {
	text := string(extra)
	comments = strings.TrimRight(text, " \t\r\n")
	return comments, text[len(comments):]
}

// leadOf returns the white space that sets a slot apart from the one before: a
// line end and the indentation, or what there is on the same line.
func leadOf(before hujson.Extra) string {
	_, space := split(before)
	i := bytes.LastIndexByte(before, '\n')
	if i < 0 {
		return space
	}
	line := string(before[i+1:])
	newline := "\n"
	if i > 0 && before[i-1] == '\r' {
		newline = "\r\n"
	}
	return newline + line[:len(line)-len(strings.TrimLeft(line, " \t"))]
}

// unit returns one step of the document's indentation, two spaces when it shows
// none.
func unit(root *hujson.Value) string {
	if list, _ := slots(root); len(list) > 0 {
		lead := leadOf(*list[0].before)
		if i := strings.LastIndexByte(lead, '\n'); i >= 0 && i < len(lead)-1 {
			return lead[i+1:]
		}
	}
	return "  "
}

// indentOf returns the indentation of the line on which the container begins.
func indentOf(root, container *hujson.Value) string {
	text := root.Pack()[:container.StartOffset]
	line := text[bytes.LastIndexByte(text, '\n')+1:]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}
