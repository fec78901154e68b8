package stack

import (
	"archive/zip"
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// EnvConductorJar names the file of a Conductor to run in place of a version that is
// fetched: a boot jar, which holds all that it needs.
const EnvConductorJar = "PERAGO_TEST_CONDUCTOR_JAR"

// conductorClass is what a boot jar of Conductor starts.
const conductorClass = "com.netflix.conductor.Conductor"

// releaseOfJar is what a jar's manifest says of it. What it does not say is as with
// the newest version that the tests know.
func releaseOfJar(path string) (conductorRelease, error) {
	fail := func(err error) (conductorRelease, error) {
		return conductorRelease{}, fmt.Errorf("%s=%s: %w", EnvConductorJar, path, err)
	}
	jar, err := zip.OpenReader(path)
	if err != nil {
		return fail(err)
	}
	defer jar.Close()
	file, err := jar.Open("META-INF/MANIFEST.MF")
	if err != nil {
		return fail(err)
	}
	defer file.Close()
	manifest := map[string]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		manifest[name] = value
	}
	if err := lines.Err(); err != nil {
		return fail(err)
	}
	if manifest["Start-Class"] != conductorClass {
		return fail(fmt.Errorf("it does not start %s; take the jar of conductor-server with the classifier boot", conductorClass))
	}
	release := conductorVersions[0]
	release.version = manifest["Implementation-Version"]
	if java, err := strconv.Atoi(manifest["Build-Jdk-Spec"]); err == nil {
		release.java = java
	}
	if known, ok := knownConductor(release.version); ok {
		release = known
	}
	release.file = path
	return release, nil
}

// knownConductor is one of the versions that the tests know.
func knownConductor(version string) (conductorRelease, bool) {
	for _, release := range conductorVersions {
		if release.version == version {
			return release, true
		}
	}
	return conductorRelease{}, false
}

// askVersion has a Conductor say which version it is. 3.21.14 and older cannot: empty.
func askVersion(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/version", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		return "", err
	}
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return "", nil
	default:
		return "", fmt.Errorf("GET %s: %s", req.URL, resp.Status)
	}
	return strings.TrimSpace(string(body)), nil
}

// unknownVersion is the sentence for a Conductor that the tests do not know; empty
// for one that they know.
func unknownVersion(version string) string {
	if _, ok := knownConductor(version); ok {
		return ""
	}
	return fmt.Sprintf("the tests do not know Conductor %s: what they expect of it is what %s does", version, conductorVersions[0].version)
}
