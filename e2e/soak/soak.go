package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"perago/e2e/fleet"
	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/credential"
	"perago/pkg/fault"
	"perago/pkg/fence"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// soak is one run.
type soak struct {
	options
	out, log io.Writer
	servers  *servers
	name     string
	root     string
	// conductor and lake are the run's own clients, with no proxy between.
	conductor *conductor.Client
	operator  *conductortest.Operator
	lake      *lakefs.Client
	targets   []target
	members   []*fleet.Member
	record    *record

	counts counter
}

// target is a branch that is published into.
type target struct {
	repository txn.Repository
	branch     txn.Branch
	// first is the commit that it began with.
	first txn.CommitID
	// drivers is how many start workflows on it at the same time.
	drivers int
}

func (t target) String() string { return string(t.repository) + "/" + string(t.branch) }

// patience is how long a workflow may take from one thing that is done to it to the
// next. Then it is ended, so that others have their turn.
const patience = 75 * time.Second

func newSoak(ctx context.Context, o options, out, log io.Writer) (_ *soak, err error) {
	s := &soak{
		options: o, out: out, log: log, record: newRecord(),
		// Names are taken: two runs on one server share nothing.
		name: fmt.Sprintf("soak-%x", time.Now().UnixNano()),
		root: filepath.Join(o.dir, "root"),
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	for _, dir := range []string{s.root, s.logs(), s.said()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if s.servers, err = startServers(ctx, o, s.logs(), log); err != nil {
		return nil, err
	}
	if s.conductor, err = conductor.New(conductor.Config{ServerURL: s.servers.ConductorURL}, nil); err != nil {
		return nil, err
	}
	s.operator = conductortest.NewOperator(s.servers.ConductorURL, nil)
	if s.lake, err = lakefs.New(lakefs.Config{
		Endpoint: s.servers.LakeFSURL, AccessKeyID: credential.New(s.servers.AccessKeyID), SecretAccessKey: credential.New(s.servers.SecretAccessKey),
	}, nil); err != nil {
		return nil, err
	}
	if err := s.register(ctx); err != nil {
		return nil, err
	}
	for i := range 2 {
		if err := s.makeRepository(ctx, txn.Repository(fmt.Sprintf("%s-%d", s.name, i))); err != nil {
			return nil, err
		}
	}
	for _, w := range fleet.Workers() {
		for i := range o.replicas {
			m, err := s.member(w, i)
			if err != nil {
				return nil, err
			}
			s.members = append(s.members, m)
			if err := m.Start(); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// logs is where the servers write, said where what the fleet and the command line
// say is kept.
func (s *soak) logs() string { return filepath.Join(s.dir, "logs") }
func (s *soak) said() string { return filepath.Join(s.dir, "said") }

// outside is the part of the tree that no step owns.
func (s *soak) outside() map[string]string {
	files := map[string]string{"README": "not of any step", "a.json": "not of the step either", "foreign/0": "of somebody else"}
	if !s.soft {
		files[txn.FenceFile] = string(fence.File())
	}
	return files
}

func (s *soak) makeRepository(ctx context.Context, repository txn.Repository) error {
	if err := s.lake.CreateRepository(ctx, repository, "local://"+string(repository), lakefstest.DefaultBranch); err != nil {
		return err
	}
	outside := s.outside()
	for _, path := range slices.Sorted(maps.Keys(outside)) {
		if _, err := s.lake.Upload(ctx, repository, lakefstest.DefaultBranch, path, lakefstest.Text(outside[path])); err != nil {
			return err
		}
	}
	first, err := s.lake.CreateCommit(ctx, repository, lakefstest.DefaultBranch, "the first one", nil)
	if err != nil {
		return err
	}
	s.targets = append(s.targets, target{repository, lakefstest.DefaultBranch, first.ID, 2})
	for i := range 3 {
		branch := txn.Branch(fmt.Sprintf("own-%d", i))
		if err := s.lake.CreateBranch(ctx, repository, branch, first.ID); err != nil {
			return err
		}
		s.targets = append(s.targets, target{repository, branch, first.ID, 1})
	}
	return nil
}

// repositories in the order in which they were made.
func (s *soak) repositories() []txn.Repository {
	var all []txn.Repository
	for _, t := range s.targets {
		if !slices.Contains(all, t.repository) {
			all = append(all, t.repository)
		}
	}
	return all
}

// sweepTTL is longer than a worker is ever suspended: that one may act later is not
// promised.
const sweepTTL = 45 * time.Second

func (s *soak) member(w fleet.Worker, i int) (*fleet.Member, error) {
	return fleet.NewMember(w, s.servers.Servers, s.binaries, filepath.Join(s.said(), fmt.Sprintf("%s-%d.log", w, i)), s.wrap, append(s.env(),
		"PERAGO_TASK_TYPES="+taskType(w),
		"PERAGO_DOMAINS="+s.name,
		"PERAGO_WORKSPACE_ROOT="+s.root, // the stage worker's alone
		"PERAGO_CONCURRENCY=3",
		"PERAGO_SWEEP_INTERVAL=10s",
		"PERAGO_SHUTDOWN_GRACE=5s",
	)...)
}

// env is what every program of the run gets.
func (s *soak) env() []string {
	var repositories []string
	for _, r := range s.repositories() {
		repositories = append(repositories, string(r))
	}
	return []string{
		"PERAGO_ALLOWED_REPOSITORIES=" + strings.Join(repositories, ","),
		"PERAGO_CONDUCTOR_ID=" + s.name,
		"PERAGO_SWEEP_TTL=" + sweepTTL.String(),
		fmt.Sprintf("PERAGO_REQUIRE_HARD_FENCE=%t", !s.soft),
	}
}

// random is a source of its own for each actor, of the run's seed.
func (s *soak) random(actor string) *rand.Rand {
	var seed [32]byte
	copy(seed[:], fmt.Sprintf("%d %s", s.seed, actor))
	return rand.New(rand.NewChaCha8(seed))
}

// run lets everything loose, brings it to rest, and judges.
func (s *soak) run(ctx context.Context) (*verdict, error) {
	fmt.Fprintf(s.log, "soak: seed %d, %s, %d processes of each worker, all that is written in %s\n", s.seed, s.duration, s.replicas, s.dir)
	if err := s.polling(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// The users' worker and the samples go on until all is at rest.
	var helpers sync.WaitGroup
	resting, rest := context.WithCancel(ctx)
	defer func() { rest(); helpers.Wait() }()
	for i := range 6 {
		helpers.Go(func() { s.user(resting, s.random(fmt.Sprint("user ", i))) })
	}
	leaks := &leaks{soak: s}
	helpers.Go(func() { leaks.watch(resting) })

	nemesis := &nemesis{soak: s, random: s.random("nemesis"), armed: map[*fault.Hold]string{}}
	over := time.Now().Add(s.duration)
	var strife, drivers sync.WaitGroup
	striving, calm := context.WithCancel(ctx)
	defer calm()
	strife.Go(func() { nemesis.run(striving) })
	strife.Go(func() { s.somebodyElse(striving, s.random("somebody else")) })
	for _, t := range s.targets {
		for i := range t.drivers {
			drivers.Go(func() {
				d := &driver{soak: s, target: t, random: s.random(fmt.Sprint("driver ", t.branch, i))}
				for ctx.Err() == nil && (time.Now().Before(over) || time.Now().Before(over.Add(patience)) && nemesis.waits()) {
					d.workflow(ctx, func() bool { return time.Now().Before(over) })
				}
			})
		}
	}
	go func() {
		select {
		case <-striving.Done():
		case <-time.After(time.Until(over)):
			calm()
		}
	}()
	strife.Wait()
	fmt.Fprintf(s.log, "soak: the nemesis has stopped; what runs comes to its end, and these faults still wait for a request: %v\n", nemesis.unmet())
	drivers.Wait()
	if err := s.listen(ctx); err != nil {
		return nil, err
	}
	rest()
	helpers.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}

	v := &verdict{operations: &s.counts, seed: s.seed}
	if err := s.search(v); err != nil {
		return nil, err
	}
	nemesis.judge(v)
	leaks.judge(v)
	if err := s.sweep(ctx, v); err != nil {
		return nil, err
	}
	return v, s.judge(ctx, v)
}

// polling waits until every worker polls.
func (s *soak) polling(ctx context.Context) error {
	for _, m := range s.members {
		if err := wait(ctx, time.Minute, 20*time.Millisecond, func() (bool, error) { return s.record.polls(m) > 0, nil }); err != nil {
			return fmt.Errorf("%s-worker never polled; its log is %s: %w", m.Worker, m.LogPath, err)
		}
	}
	return nil
}

func (s *soak) close() {
	for _, m := range s.members {
		m.Close()
	}
	if s.conductor != nil {
		s.conductor.CloseIdleConnections()
	}
	if s.servers != nil {
		if err := s.servers.stop(); err != nil {
			fmt.Fprintln(s.log, "soak:", err)
		}
	}
}

// counter counts by name.
type counter struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *counter) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[name]++
}

func (c *counter) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var words []string
	for _, name := range slices.Sorted(maps.Keys(c.counts)) {
		words = append(words, fmt.Sprintf("%s %d", name, c.counts[name]))
	}
	return strings.Join(words, ", ")
}

// wait asks until the condition holds.
func wait(ctx context.Context, within, pace time.Duration, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("it takes more than %s", within))
	defer cancel()
	for {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		if !pause(ctx, pace) {
			return context.Cause(ctx)
		}
	}
}

// pause reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// token is a word that nobody else draws.
func token(random *rand.Rand) string {
	raw := make([]byte, 6)
	for i := range raw {
		raw[i] = byte(random.Uint32())
	}
	return hex.EncodeToString(raw)
}
