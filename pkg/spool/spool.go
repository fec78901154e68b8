// Package spool keeps long lists out of memory. A list of a million paths is
// hundreds of MiB as Go values; here it is one buffer and a temporary file.
package spool

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"os"
)

// memory is how many bytes of a list stay in memory. Only a longer list needs a
// temporary file.
const memory = 1 << 20

// pieceSize is how many bytes of the file one reading holds.
const pieceSize = 32 << 10

// List is a list of records that are appended once and read in their order any
// number of times. The zero value is an empty list. Appending is for one goroutine
// at a time. Several goroutines may read at once when nobody appends.
//
// A record is a key and a value. A key costs only the bytes in which it differs
// from the key before it, so sorted keys cost least.
type List struct {
	// file holds the first written bytes; nil while all of them fit in buffer.
	file    *os.File
	written int64
	buffer  []byte
	last    string
	length  int
}

// Len is the number of records.
func (l *List) Len() int { return l.length }

// Append adds a record. An error is that of the temporary file.
func (l *List) Append(key string, value []byte) error {
	shared := 0
	for shared < min(len(l.last), len(key)) && l.last[shared] == key[shared] {
		shared++
	}
	l.buffer = binary.AppendUvarint(l.buffer, uint64(shared))
	l.buffer = binary.AppendUvarint(l.buffer, uint64(len(key)-shared))
	l.buffer = append(l.buffer, key[shared:]...)
	l.buffer = binary.AppendUvarint(l.buffer, uint64(len(value)))
	l.buffer = append(l.buffer, value...)
	l.last = key
	l.length++
	if len(l.buffer) < memory {
		return nil
	}
	return l.flush()
}

func (l *List) flush() error {
	if l.file == nil {
		file, err := Temporary()
		if err != nil {
			return err
		}
		l.file = file
	}
	n, err := l.file.WriteAt(l.buffer, l.written)
	l.written += int64(n)
	if err != nil {
		return fmt.Errorf("write a list of files to the temporary directory: %w", err)
	}
	l.buffer = l.buffer[:0]
	return nil
}

// Mark is a place in a list.
type Mark struct{ at int64 }

// Mark is the end of the list as it is now. The next record repeats its whole key,
// so that a reading can begin there.
func (l *List) Mark() Mark {
	l.last = ""
	return Mark{l.size()}
}

func (l *List) size() int64 { return l.written + int64(len(l.buffer)) }

// All gives every record in order. A value is valid until the next record is
// asked for. A pair with an error is the last one.
func (l *List) All() iter.Seq2[Record, error] { return l.Between(Mark{}, Mark{l.size()}) }

// Record is one record of a list.
type Record struct {
	Key   string
	Value []byte
}

// Between gives the records from one mark to another, as All does.
func (l *List) Between(from, to Mark) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		reader := bufio.NewReaderSize(&reader{l, from.at, to.at}, int(min(pieceSize, to.at-from.at)))
		var key, value []byte
		for {
			record, err := next(reader, &key, &value)
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(Record{}, fmt.Errorf("read a list of files from the temporary directory: %w", err))
				return
			}
			if !yield(record, nil) {
				return
			}
		}
	}
}

// reader reads the bytes of a list from one offset to another.
type reader struct {
	list   *List
	at, to int64
}

func (r *reader) Read(p []byte) (int, error) {
	p = p[:min(int64(len(p)), r.to-r.at)]
	if len(p) == 0 {
		return 0, io.EOF
	}
	var n int
	var err error
	if inFile := r.list.written - r.at; inFile > 0 {
		n, err = r.list.file.ReadAt(p[:min(int64(len(p)), inFile)], r.at)
	} else {
		n = copy(p, r.list.buffer[-inFile:])
	}
	r.at += int64(n)
	if err == io.EOF {
		// Somebody cut the file. What comes next would be read as other records.
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// next reads one record. Its error is io.EOF only between two records.
func next(reader *bufio.Reader, key, value *[]byte) (Record, error) {
	shared, err := binary.ReadUvarint(reader)
	if err != nil {
		return Record{}, err
	}
	if shared > uint64(len(*key)) {
		return Record{}, fmt.Errorf("a record shares %d bytes with a key of %d", shared, len(*key))
	}
	if *key, err = read(reader, (*key)[:shared]); err == nil {
		*value, err = read(reader, (*value)[:0])
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return Record{Key: string(*key), Value: *value}, err
}

// read appends what comes behind its own length.
func read(reader *bufio.Reader, to []byte) ([]byte, error) {
	length, err := binary.ReadUvarint(reader)
	if err != nil {
		return to, err
	}
	if length > memory {
		return to, fmt.Errorf("a part of a record has %d bytes", length)
	}
	begin := len(to)
	to = append(to, make([]byte, length)...)
	_, err = io.ReadFull(reader, to[begin:])
	return to, err
}

// Close gives the temporary file back. The list can no longer be read.
func (l *List) Close() error {
	if l == nil || l.file == nil {
		return nil
	}
	return l.file.Close()
}

// Temporary makes a file that has no name any more, so that nothing is left behind
// when the process is killed. TMPDIR says where; it is /tmp without it.
func Temporary() (*os.File, error) {
	file, err := os.CreateTemp("", "perago-list-*")
	if err != nil {
		return nil, fmt.Errorf("make a temporary file for a list of files: %w; give the worker a writable /tmp, or set TMPDIR", err)
	}
	if err := os.Remove(file.Name()); err != nil {
		file.Close()
		return nil, fmt.Errorf("unlink a temporary file: %w", err)
	}
	return file, nil
}
