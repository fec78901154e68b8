package roundtrip

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// names are few, so that files and directories often want the same one, and odd,
// so that whatever has a meaning in a URL, a shell or a pattern is among them.
// Several sort between a name and the same name with a slash.
var names = []string{
	"a", "b", "a.b", "a-", "a!", "a0", "A", ".a", "..a", "...", ".git", ".DS_Store", "_lakefs_actions_", "day=1",
	"sp ace", " lead", "trail ", "pl+us", "pc%41", "100%", "h#x", "q?x", "a&b", "it's", `"q"`, `back\slash`, "new\nline", "tab\t", "\x01", "\x7f",
	"*", "[a]", "{b}", "~", "тест", "é", "e\u0301", "emo😀", "\u202e", "\ufeff", strings.Repeat("n", 255), strings.Repeat("ж", 127),
}

// edit changes a tree, path to content, in a few random ways. No file is also a
// directory, and no path is longer than a key may be.
func edit(random *rand.Rand, files map[string]string) {
	if random.IntN(25) == 0 {
		clear(files)
	}
	for range random.IntN(12) {
		existing := slices.Sorted(maps.Keys(files))
		any := ""
		if len(existing) > 0 {
			any = existing[random.IntN(len(existing))]
		}
		switch kind := random.IntN(10); {
		case any == "" || kind < 4:
			put(files, randomPath(random), randomContent(random))
		case kind == 4:
			delete(files, any)
		case kind == 5: // the same size, other content
			if content := []byte(files[any]); len(content) > 0 {
				content[random.IntN(len(content))] ^= 1
				files[any] = string(content)
			}
		case kind == 6:
			files[any] = randomContent(random)
		case kind == 7: // a file becomes a directory
			put(files, any+"/"+randomName(random), randomContent(random))
		case kind == 8: // a directory becomes a file
			if at := strings.LastIndexByte(any, '/'); at > 0 {
				put(files, any[:at], randomContent(random))
			}
		default: // moved
			content := files[any]
			delete(files, any)
			put(files, randomPath(random), content)
		}
	}
}

// longestPath leaves room for the prefix in lakeFS's 1024 bytes.
const longestPath = 1000

// put adds a file and takes away what it is in the way of.
func put(files map[string]string, path, content string) {
	if len(path) > longestPath {
		return
	}
	for other := range files {
		if strings.HasPrefix(other, path+"/") || strings.HasPrefix(path, other+"/") {
			delete(files, other)
		}
	}
	files[path] = content
}

func randomName(random *rand.Rand) string { return names[random.IntN(len(names))] }

func randomPath(random *rand.Rand) string {
	segments := make([]string, 1+random.IntN(4))
	for i := range segments {
		segments[i] = randomName(random)
		if random.IntN(3) == 0 { // some names are much more frequent
			segments[i] = names[random.IntN(6)]
		}
	}
	return strings.Join(segments, "/")
}

func randomContent(random *rand.Rand) string {
	size := []int{0, 1, 16, 1000, 70_000, 1_100_000}[min(random.IntN(6), random.IntN(6))]
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(random.Uint32()), byte(random.Uint32())}).Read(content) // never fails
	return string(content)
}
