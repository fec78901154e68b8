package spool

import (
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

type pair struct{ key, value string }

func collect(records iter.Seq2[Record, error]) ([]pair, error) {
	var all []pair
	for record, err := range records {
		if err != nil {
			return nil, err
		}
		all = append(all, pair{record.Key, string(record.Value)})
	}
	return all, nil
}

// What was appended comes back in its order: as a whole, twice, and between any two
// marks; whether it fits in memory or not.
func TestList_GivesBackWhatWasAppended(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var list List
		defer list.Close()
		var want []pair
		marks, places := []Mark{{}}, []int{0}
		// Long values fill the memory with few records.
		value := strings.Repeat("v", rapid.SampledFrom([]int{0, 1, memory / 5}).Draw(t, "size"))
		for _, key := range rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "a/b", "a/bc", "é", "z\x00"}), 0, 30).Draw(t, "keys") {
			if rapid.Bool().Draw(t, "mark") {
				marks, places = append(marks, list.Mark()), append(places, len(want))
			}
			if err := list.Append(key, []byte(value)); err != nil {
				t.Fatal(err)
			}
			want = append(want, pair{key, value})
		}
		if list.Len() != len(want) {
			t.Fatalf("Len() is %d, want %d", list.Len(), len(want))
		}
		for range 2 {
			if got, err := collect(list.All()); err != nil || !slices.Equal(got, want) {
				t.Fatalf("got %d records of %d, %v", len(got), len(want), err)
			}
		}
		marks, places = append(marks, list.Mark()), append(places, len(want))
		for i := range len(marks) - 1 {
			if got, err := collect(list.Between(marks[i], marks[i+1])); err != nil || !slices.Equal(got, want[places[i]:places[i+1]]) {
				t.Fatalf("between the marks %d and %d: %d records, %v", i, i+1, len(got), err)
			}
		}
	})
}

// A short list needs no file. A long one holds at most its buffer in memory, and
// its file has no name.
func TestList_GoesToTheDiskWhenItIsLong(t *testing.T) {
	directory := t.TempDir()
	t.Setenv("TMPDIR", directory)
	var list List
	for i := range 100_000 {
		if err := list.Append(fmt.Sprintf("directory/file-%09d", i), []byte("0123456789")); err != nil {
			t.Fatal(err)
		}
		if i == 1000 && list.file != nil {
			t.Error("a list of a thousand records is in a file")
		}
	}
	if list.file == nil || cap(list.buffer) > 2*memory {
		t.Errorf("the file is %v and the buffer has %d bytes", list.file, cap(list.buffer))
	}
	if entries, err := os.ReadDir(directory); err != nil || len(entries) != 0 {
		t.Errorf("the temporary directory holds %v, %v", entries, err)
	}
	if err := list.Close(); err != nil {
		t.Error(err)
	}
	if _, err := collect(list.All()); err == nil {
		t.Error("a closed list can be read")
	}
}

// Without a temporary directory a long list fails with what to do.
func TestList_SaysWhatIsMissing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()+"/missing")
	var list List
	err := list.Append("a", make([]byte, memory))
	if err == nil || !strings.Contains(err.Error(), "set TMPDIR") {
		t.Errorf("got %v", err)
	}
}

// A file that was cut is an error and never the end of the list.
func TestList_RefusesAFileThatWasCut(t *testing.T) {
	t.Parallel()
	var list List
	defer list.Close()
	for i := range 3 * memory / 64 {
		if err := list.Append(fmt.Sprint(i), make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := collect(list.Between(Mark{}, Mark{list.written}))
	if err != nil {
		t.Fatal(err)
	}
	if err := list.file.Truncate(list.written / 2); err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, failed := range list.All() {
		if failed != nil {
			err = failed
		}
		read++
	}
	if err == nil || read >= len(whole) {
		t.Errorf("%d records of %d and the error %v", read, len(whole), err)
	}
}
