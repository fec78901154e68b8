package projection

import (
	"fmt"
	"strings"

	"perago/pkg/txn"
)

// longestName is the limit of Linux file systems, in bytes.
const longestName = 255

// Keys refuses object keys that have no file. A checkout cannot download them, so an
// import does not publish them. The names come from outside, and a key that was cleaned
// up would be another one's file.
type Keys struct {
	// above are the keys before that the next one begins with.
	above []string
}

// Check takes the next key, relative to the prefix, in byte order, and says why it
// cannot be a file beside those before it.
func (c *Keys) Check(local string) error {
	if err := txn.CheckKey(local); err != nil {
		return err
	}
	for name := range strings.SplitSeq(local, "/") {
		if err := CheckName(name); err != nil {
			return err
		}
	}
	for len(c.above) > 0 && !strings.HasPrefix(local, c.above[len(c.above)-1]) {
		c.above = c.above[:len(c.above)-1]
	}
	for _, file := range c.above {
		if local[len(file)] == '/' {
			return fmt.Errorf("%q is an object too, and a file cannot be a directory", file)
		}
	}
	c.above = append(c.above, local)
	return nil
}

// CheckName refuses what is no single name of a file system.
func CheckName(name string) error {
	switch {
	case name == "", name == ".", name == "..", strings.ContainsAny(name, "/\x00"):
		return fmt.Errorf("%q is not the name of a file", name)
	case len(name) > longestName:
		return fmt.Errorf("the name %.40q… has %d bytes, more than the %d of a file system", name, len(name), longestName)
	}
	return nil
}
