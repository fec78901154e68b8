package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"perago/e2e/stack"
	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/credential"
	"perago/pkg/doctor"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// installation is two servers, a repository with a branch main, and the environment
// of a worker.
type installation struct {
	*testing.T
	ctx         context.Context
	environment map[string]string
	lake        *lakefs.Client
	conductor   *conductor.Client
	operator    *conductortest.Operator
	repository  txn.Repository
	head        txn.CommitID
	// suffix is in names that no other test has.
	suffix string
}

func (i *installation) address() string { return "lakefs://" + string(i.repository) + "/main" }

// onBothServers runs a scenario on the memory servers and on the real ones.
func onBothServers(t *testing.T, scenario func(*installation)) {
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		scenario(inMemory(t, lakefstest.NewServer(), conductortest.New(nil)))
	})
	if stack.Short(t) {
		return
	}
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		servers := stack.Require(t)
		scenario(newInstallation(t, servers.ConductorURL, lakefs.Config{
			Endpoint: servers.LakeFSURL, AccessKeyID: credential.New(servers.AccessKeyID), SecretAccessKey: credential.New(servers.SecretAccessKey),
		}))
	})
}

func inMemory(t *testing.T, lake *lakefstest.Server, server http.Handler) *installation {
	t.Helper()
	lakeServer, conductorServer := httptest.NewServer(lake), httptest.NewServer(server)
	t.Cleanup(lakeServer.Close)
	t.Cleanup(conductorServer.Close)
	config := lake.Config()
	config.Endpoint = lakeServer.URL
	return newInstallation(t, conductorServer.URL, config)
}

func newInstallation(t *testing.T, conductorURL string, config lakefs.Config) *installation {
	t.Helper()
	i := &installation{T: t, ctx: t.Context(), suffix: strings.ReplaceAll(uuid.NewString()[:13], "-", "")}
	var err error
	i.lake, err = lakefs.New(config, nil)
	i.no(err)
	i.conductor, err = conductor.New(conductor.Config{ServerURL: conductorURL}, nil)
	i.no(err)
	t.Cleanup(i.conductor.CloseIdleConnections)
	i.operator = conductortest.NewOperator(conductorURL, nil)
	i.repository = lakefstest.NewName(t)
	i.no(i.lake.CreateRepository(i.ctx, i.repository, "local://"+string(i.repository), "main"))
	i.head, err = i.lake.Head(i.ctx, i.repository, "main")
	i.no(err)
	i.environment = map[string]string{
		"CONDUCTOR_SERVER_URL": conductorURL, "LAKECTL_SERVER_ENDPOINT_URL": config.Endpoint,
		"LAKECTL_CREDENTIALS_ACCESS_KEY_ID": config.AccessKeyID.Reveal(), "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": config.SecretAccessKey.Reveal(),
		"PERAGO_CONDUCTOR_ID": "doctor-" + i.suffix, "PERAGO_REQUIRE_HARD_FENCE": "true",
	}
	return i
}

func (i *installation) no(err error) {
	i.Helper()
	if err != nil {
		i.Fatal(err)
	}
}

// run is the program in the installation's environment, changed as given.
func (i *installation) run(changed map[string]string, arguments ...string) (code int, stdout, stderr string) {
	i.Helper()
	environment := maps.Clone(i.environment)
	maps.Copy(environment, changed)
	var out, errors bytes.Buffer
	code = run(i.ctx, append([]string{"--timeout", "2m"}, arguments...), func(name string) (string, bool) {
		value, ok := environment[name]
		return value, ok
	}, &out, &errors)
	return code, out.String(), errors.String()
}

func (i *installation) must(arguments ...string) {
	i.Helper()
	if code, stdout, stderr := i.run(nil, arguments...); code != exitOK {
		i.Fatalf("perago %v: %d\n%s%s", arguments, code, stdout, stderr)
	}
}

// examined is what doctor said.
type examined struct {
	Findings []doctor.Finding `json:"findings"`
	code     int
	stderr   string
}

// examine runs doctor for these checks, on the branch main.
func (i *installation) examine(checks string, arguments ...string) examined {
	i.Helper()
	return i.examineIn(nil, checks, append([]string{i.address()}, arguments...)...)
}

func (i *installation) examineIn(changed map[string]string, checks string, arguments ...string) (e examined) {
	i.Helper()
	arguments = append([]string{"doctor", "-o", "json"}, arguments...)
	if checks != "" {
		arguments = append(arguments, "--only", checks)
	}
	var stdout string
	e.code, stdout, e.stderr = i.run(changed, arguments...)
	if err := json.Unmarshal([]byte(stdout), &e); err != nil {
		i.Fatalf("%v: %s%s", err, stdout, e.stderr)
	}
	for _, text := range []string{stdout, e.stderr} {
		if secret := i.environment["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"]; strings.Contains(text, secret) {
			i.Errorf("the output holds the secret: %s", text)
		}
	}
	return e
}

// about are the findings of a check, for a subject with this in it.
func (e examined) about(check doctor.Check, subject string) (all []doctor.Finding) {
	for _, f := range e.Findings {
		if f.Check == check && strings.Contains(f.Subject, subject) {
			all = append(all, f)
		}
	}
	return all
}

// says holds doctor to one finding, and its exit code to the finding's state.
func (i *installation) says(e examined, check doctor.Check, subject string, state doctor.State, what string) {
	i.Helper()
	all := e.about(check, subject)
	if len(all) != 1 || all[0].State != state || !strings.Contains(all[0].What, what) || (all[0].Do == "") != (state == doctor.OK) {
		i.Fatalf("of %s on %q: got %+v, want %s: %q", check, subject, all, state, what)
	}
	if want := (state == doctor.Error || state == doctor.Unknown); want && e.code != exitFailed {
		i.Fatalf("exit code %d with %+v", e.code, all[0])
	}
}

// raw is what no client of this project's sends to lakeFS.
func (i *installation) raw(method, path, body string) {
	i.Helper()
	request, err := http.NewRequestWithContext(i.ctx, method, i.environment["LAKECTL_SERVER_ENDPOINT_URL"]+"/api/v1"+path, strings.NewReader(body))
	i.no(err)
	request.Header.Set("Content-Type", "application/json")
	request.SetBasicAuth(i.environment["LAKECTL_CREDENTIALS_ACCESS_KEY_ID"], i.environment["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"])
	response, err := http.DefaultClient.Do(request)
	i.no(err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	i.no(err)
	if response.StatusCode >= 300 {
		i.Fatalf("%s %s: %d %s", method, path, response.StatusCode, answer)
	}
}

func (i *installation) rules(name, body string) {
	i.Helper()
	i.raw(http.MethodPut, "/repositories/"+string(i.repository)+"/settings/"+name, body)
}

// do is what no client of this project's sends to Conductor.
func (i *installation) do(method, path string, body any) {
	i.Helper()
	answer, err := i.operator.Do(i.ctx, method, path, body)
	i.no(err)
	if answer.Status >= 300 {
		i.Fatalf("%s %s: %d %s", method, path, answer.Status, answer.Body)
	}
}

// workflow registers a workflow of one task, and gives its name.
func (i *installation) workflow(kind string, input map[string]any) string {
	i.Helper()
	name := "doctor_" + i.suffix
	i.do(http.MethodPost, "/metadata/taskdefs", []any{map[string]any{
		"name": kind, "ownerEmail": "doctor@example.com", "retryCount": 0, "timeoutPolicy": "RETRY", "timeoutSeconds": 0, "responseTimeoutSeconds": 60,
	}})
	i.do(http.MethodPut, "/metadata/workflow", []any{map[string]any{
		"name": name, "version": 1, "schemaVersion": 2, "ownerEmail": "doctor@example.com",
		"tasks": []any{map[string]any{"name": kind, "taskReferenceName": "only", "type": "SIMPLE", "inputParameters": input}},
	}})
	return name
}

func (i *installation) start(name string, input string, domains map[string]string) txn.WorkflowID {
	i.Helper()
	id, err := i.conductor.StartWorkflow(i.ctx, conductor.StartRequest{Name: name, Version: 1, Input: json.RawMessage(input), TaskToDomain: domains})
	i.no(err)
	i.Cleanup(func() { _ = i.operator.Terminate(context.Background(), id, "the test is over") })
	return id
}

// The branch and its repository.
func TestDoctorOfABranch(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(i *installation) {
		const checks = "repository,fence,fence-held,protected,staging-open,clean,retention"
		main, repository := i.address(), string(i.repository)

		ill := i.examine(checks)
		i.says(ill, doctor.CheckRepository, main, doctor.OK, "the branch is there")
		i.says(ill, doctor.CheckFence, main, doctor.Error, "holds no "+txn.FenceFile)
		i.says(ill, doctor.CheckFenceHeld, main, doctor.Unknown, "could not be looked at")
		i.says(ill, doctor.CheckProtected, main, doctor.Warning, "no branch protection rule matches the branch")
		i.says(ill, doctor.CheckStagingOpen, repository, doctor.OK, "")
		i.says(ill, doctor.CheckClean, main, doctor.OK, "")
		i.says(ill, doctor.CheckRetention, main, doctor.OK, "no garbage collection rules")

		i.must("fence", "install", main, "--protect", "--yes")
		head, err := i.lake.Head(i.ctx, i.repository, "main")
		i.no(err)
		well := i.examine(checks)
		i.says(well, doctor.CheckFence, main, doctor.OK, "")
		i.says(well, doctor.CheckProtected, main, doctor.OK, "main")
		i.says(well, doctor.CheckFenceHeld, main, doctor.Warning, "no publication of the branch shows")
		if well.code != exitOK || well.stderr != "" {
			i.Errorf("a warning is no failure: %d, %s", well.code, well.stderr)
		}
		i.says(i.examine("fence-held", "--verify-fence"), doctor.CheckFenceHeld, main, doctor.OK, "lakeFS refused the probe merge")
		// A settled branch has a commit that lakeFS asked the fence about.
		i.must("settle", main, "--yes")
		i.says(i.examine("fence-held"), doctor.CheckFenceHeld, main, doctor.OK, "for a publication of the branch")
		settled, err := i.lake.Head(i.ctx, i.repository, "main")
		i.no(err)
		if settled == head {
			i.Fatal("settle did nothing")
		}

		i.rules("branch_protection", `[{"pattern":"main"},{"pattern":"perago-*"}]`)
		i.says(i.examine(checks), doctor.CheckStagingOpen, repository, doctor.Error, "perago-* matches perago-staging-*")
		i.rules("branch_protection", `[]`)
		i.says(i.examine(checks), doctor.CheckStagingOpen, repository, doctor.OK, "")

		i.rules("gc_rules", `{"default_retention_days":1,"branches":[]}`)
		i.registerPublish(60)
		i.says(i.examine(checks), doctor.CheckRetention, main, doctor.Error, "is kept for 24h0m0s")
		i.rules("gc_rules", `{"default_retention_days":30,"branches":[{"branch_id":"main","retention_days":1}]}`)
		i.says(i.examine(checks), doctor.CheckRetention, main, doctor.Error, "what the branch held before is kept for 24h0m0s")
		i.rules("gc_rules", `{"default_retention_days":30,"branches":[]}`)
		i.says(i.examine(checks), doctor.CheckRetention, main, doctor.OK, "longer than")

		now, err := i.lake.Head(i.ctx, i.repository, "main")
		i.no(err)
		if now != settled {
			i.Errorf("doctor moved the head from %s to %s", settled, now)
		}
		branches, err := i.lake.Branches(i.ctx, i.repository, "")
		i.no(err)
		if len(branches) != 1 {
			i.Errorf("doctor left %+v", branches)
		}
	})
}

// registerPublish registers a publish TaskDef of the test's own with this lease.
func (i *installation) registerPublish(response int) {
	i.Helper()
	i.no(i.conductor.PutTaskDefinition(i.ctx, json.RawMessage(fmt.Sprintf(`{
		"name": "perago_publish_doctor_%s", "ownerEmail": "doctor@example.com", "retryCount": 3, "timeoutPolicy": "RETRY", "timeoutSeconds": 0, "responseTimeoutSeconds": %d,
		"inputTemplate": {"budget": {"observed_merge_p99_seconds": 5, "safety_margin_seconds": 5, "lakefs_merge_timeout_seconds": 10,
			"conductor_completion_timeout_seconds": 10, "worker_shutdown_grace_seconds": 20, "heartbeat_interval_seconds": 10}}}`, i.suffix, response))))
}

// A branch with uncommitted changes, protected or not.
func TestDoctorOfADirtyBranch(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(i *installation) {
		_, err := i.lake.Upload(i.ctx, i.repository, "main", "left/behind", lakefstest.Text("x"))
		i.no(err)
		dirty := i.examine("clean")
		i.says(dirty, doctor.CheckClean, i.address(), doctor.Error, `uncommitted changes, such as "left/behind"`)
		if do := dirty.about(doctor.CheckClean, "")[0].Do; strings.Contains(do, "lift") {
			i.Errorf("it is not protected: %s", do)
		}
		i.rules("branch_protection", `[{"pattern":"main"}]`)
		if do := i.examine("clean").about(doctor.CheckClean, "")[0].Do; !strings.Contains(do, "lift the protection") {
			i.Errorf("it is protected: %s", do)
		}
		i.rules("branch_protection", `[]`)
	})
	onBothServers(t, func(i *installation) {
		_, err := i.lake.Upload(i.ctx, i.repository, "main", "left/behind", lakefstest.Text("x"))
		i.no(err)
		i.says(i.examine("clean"), doctor.CheckClean, i.address(), doctor.Error, "uncommitted")
		_, err = i.lake.CreateCommit(i.ctx, i.repository, "main", "by hand", nil)
		i.no(err)
		i.says(i.examine("clean"), doctor.CheckClean, i.address(), doctor.OK, "")
	})
}

// Addresses of nothing, and a repository that takes no changes.
func TestDoctorOfAWrongAddress(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(i *installation) {
		const checks = "repository,clean"
		branch := "lakefs://" + string(i.repository) + "/missing"
		none := i.examineIn(nil, checks, branch)
		i.says(none, doctor.CheckRepository, branch, doctor.Error, "has no branch missing")
		i.says(none, doctor.CheckClean, branch, doctor.Unknown, "the branch cannot be read")
		none = i.examineIn(nil, checks, "lakefs://no-such-repository/main")
		i.says(none, doctor.CheckRepository, "", doctor.Error, "lakeFS has no repository no-such-repository")

		name := string(lakefstest.NewName(i))
		i.raw(http.MethodPost, "/repositories", `{"name":"`+name+`","storage_namespace":"local://`+name+`","default_branch":"main","read_only":true}`)
		i.says(i.examineIn(nil, checks, "lakefs://"+name+"/main"), doctor.CheckRepository, name, doctor.Error, "read-only")
		i.says(i.examine(checks), doctor.CheckRepository, i.address(), doctor.OK, "")
	})
}

// Hidden branches that outlived their workflow, until a sweep has come.
func TestDoctorOfOrphans(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(i *installation) {
		repository := string(i.repository)
		branch := func(identity string, id txn.WorkflowID, age time.Duration) txn.Branch {
			execution, err := lakefstest.ExecutionAt(age)
			i.no(err)
			name := txn.NewStagingName(txn.ConductorIdentity(identity), id, txn.NewLogicalTaskKey(id, "stage", 0), 0, execution).Branch()
			i.no(i.lake.CreateBranch(i.ctx, i.repository, name, i.head))
			return name
		}
		identity := i.environment["PERAGO_CONDUCTOR_ID"]
		id := i.start(i.workflow("doctor_work_"+i.suffix, nil), "{}", nil)
		orphan := branch(identity, id, 48*time.Hour)
		branch(identity, txn.WorkflowID(uuid.NewString()), time.Hour)
		i.says(i.examine("orphans"), doctor.CheckOrphans, "", doctor.OK, "")
		i.no(i.operator.Terminate(i.ctx, id, "enough"))
		i.says(i.examine("orphans"), doctor.CheckOrphans, repository, doctor.Warning, "1 hidden branch of ended workflows older than PERAGO_SWEEP_TTL, such as "+string(orphan))
		i.environment["PERAGO_ALLOWED_REPOSITORIES"] = repository
		i.must("sweep", "--repository", repository)
		i.says(i.examine("orphans"), doctor.CheckOrphans, "", doctor.OK, "")

		stranger := branch("of another", txn.WorkflowID(uuid.NewString()), 48*time.Hour)
		i.says(i.examine("orphans"), doctor.CheckOrphans, repository, doctor.Warning, "1 hidden branch of another Conductor")
		i.must("sweep", "--repository", repository, "--branch", string(stranger), "--force")
		i.no(i.lake.CreateBranch(i.ctx, i.repository, "perago-staging-by-hand", i.head))
		i.says(i.examine("orphans"), doctor.CheckOrphans, repository, doctor.Warning, "whose name is not one that perago gives")
		i.no(i.lake.DeleteBranch(i.ctx, i.repository, "perago-staging-by-hand"))
		execution, err := lakefstest.ExecutionAt(2 * time.Hour)
		i.no(err)
		i.no(i.lake.CreateBranch(i.ctx, i.repository, txn.ProbeBranch(execution), i.head))
		i.says(i.examine("orphans"), doctor.CheckOrphans, repository, doctor.Warning, "1 hidden branch left by perago fence or settle")
		i.no(i.lake.DeleteBranch(i.ctx, i.repository, txn.ProbeBranch(execution)))
		i.says(i.examine("orphans"), doctor.CheckOrphans, "", doctor.OK, "")
	})
}

// Tasks in a domain that nobody polls, until somebody does.
func TestDoctorOfQueues(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(i *installation) {
		kind, domain := "perago_stage_doctor_"+i.suffix, "d"+i.suffix
		i.start(i.workflow(kind, nil), "{}", map[string]string{kind: domain})
		queue := domain + ":" + kind
		poll := func(domain string) {
			i.Helper()
			_, err := i.conductor.Poll(i.ctx, txn.PollRequest{Type: txn.TaskType(kind), Worker: "nobody", Domain: domain, Count: 1})
			i.no(err)
		}
		i.says(i.examineIn(nil, "polled"), doctor.CheckPolled, queue, doctor.Error, "1 task waits in the domain "+domain+", where nobody has ever polled")
		poll("")
		i.says(i.examineIn(nil, "polled"), doctor.CheckPolled, queue, doctor.Error, "nobody has ever polled")
		poll(domain)
		if left := i.examineIn(nil, "polled").about(doctor.CheckPolled, queue); len(left) > 0 {
			i.Errorf("somebody polls: %+v", left)
		}
	})
}

// A queue that was polled long ago: the worker is busy or down.
func TestDoctorOfAnOldPoll(t *testing.T) {
	t.Parallel()
	now := time.Now()
	server := conductortest.New(func() time.Time { return now })
	i := inMemory(t, lakefstest.NewServer(), server)
	kind := "perago_stage_doctor_" + i.suffix
	name := i.workflow(kind, nil)
	_, err := i.conductor.Poll(i.ctx, txn.PollRequest{Type: txn.TaskType(kind), Worker: "gone", Count: 1})
	i.no(err)
	i.start(name, "{}", nil)
	i.says(i.examineIn(nil, "polled"), doctor.CheckPolled, "", doctor.OK, "")
	// The server noted the poll when its clock was behind.
	now = now.Add(-10 * time.Minute)
	i.start(name, "{}", nil)
	_, err = i.conductor.Poll(i.ctx, txn.PollRequest{Type: txn.TaskType(kind), Worker: "gone", Count: 1})
	i.no(err)
	now = now.Add(10 * time.Minute)
	old := i.examineIn(nil, "polled")
	i.says(old, doctor.CheckPolled, kind, doctor.Warning, "by gone")
	if old.code != exitOK {
		i.Errorf("a warning is no failure: %d", old.code)
	}
}

// A task that Conductor has lost from its queue, until it is put back. The other check
// of queues does not see it, because Conductor does not list an empty queue's tasks.
func TestDoctorOfALostTask(t *testing.T) {
	t.Parallel()
	now := time.Now()
	server := conductortest.New(func() time.Time { return now })
	i := inMemory(t, lakefstest.NewServer(), server)
	kind, domain := "perago_stage_doctor_"+i.suffix, "d"+i.suffix
	queue := domain + ":" + kind
	now = now.Add(-10 * time.Minute)
	id := i.start(i.workflow(kind, nil), "{}", map[string]string{kind: domain})
	now = now.Add(10 * time.Minute)
	workflow, err := i.conductor.Workflow(i.ctx, id)
	i.no(err)
	if left := i.examineIn(nil, "lost").about(doctor.CheckLost, queue); len(left) > 0 {
		i.Errorf("the queue has the task: %+v", left)
	}
	server.Lose(workflow.Tasks[0].ID)
	i.says(i.examineIn(nil, "lost"), doctor.CheckLost, queue, doctor.Unknown, "the queue is empty, and no worker has polled it within a minute")
	poll := func() []txn.Task {
		i.Helper()
		tasks, err := i.conductor.Poll(i.ctx, txn.PollRequest{Type: txn.TaskType(kind), Worker: "w", Domain: domain, Count: 1})
		i.no(err)
		return tasks
	}
	if got := poll(); len(got) != 0 {
		t.Fatalf("polled %d tasks, want none", len(got))
	}
	lost := i.examineIn(nil, "lost,polled")
	i.says(lost, doctor.CheckLost, queue, doctor.Error, "in workflow "+string(id))
	if all := lost.about(doctor.CheckPolled, queue); len(all) > 0 || lost.code != exitFailed {
		i.Errorf("code %d, %+v", lost.code, all)
	}
	_, err = i.operator.Do(i.ctx, http.MethodPost, "/tasks/queue/requeue/"+kind, nil)
	i.no(err)
	if left := i.examineIn(nil, "lost").about(doctor.CheckLost, queue); len(left) > 0 {
		i.Errorf("it was put back: %+v", left)
	}
	if got := poll(); len(got) != 1 {
		t.Errorf("polled %d tasks, want the one that was put back", len(got))
	}
	i.says(i.examineIn(nil, "lost"), doctor.CheckLost, "", doctor.OK, "lost no task of 1 open workflow")
}

// Both servers are read for lost tasks; a task that has just come is not one.
func TestDoctorOfNoLostTask(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(i *installation) {
		kind := "perago_stage_doctor_" + i.suffix
		i.start(i.workflow(kind, nil), "{}", nil)
		e := i.examineIn(nil, "lost")
		if left := e.about(doctor.CheckLost, kind); len(left) > 0 || len(e.Findings) == 0 {
			i.Errorf("%+v", e.Findings)
		}
		for _, found := range e.Findings {
			if found.Check == doctor.CheckLost && strings.HasPrefix(found.What, "could not be looked at: ") && !strings.Contains(found.What, "not looked at") {
				i.Errorf("%+v", found)
			}
		}
	})
}

// A publish TaskDef whose lease is too short, until it is registered again.
func TestDoctorOfABudget(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(i *installation) {
		name := "perago_publish_doctor_" + i.suffix
		i.registerPublish(20)
		i.says(i.examineIn(nil, "budget"), doctor.CheckBudget, name, doctor.Error, "responseTimeoutSeconds")
		i.registerPublish(60)
		if left := i.examineIn(nil, "budget").about(doctor.CheckBudget, name); len(left) > 0 {
			i.Errorf("the rules hold: %+v", left)
		}
	})
}

// Two open workflows on one branch, until one has ended: told by the inputs that
// they were started with, and by those of their steps.
func TestDoctorOfTwoWriters(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(i *installation) {
		workspace := fmt.Sprintf(`{"repository":%q,"branch":"main","ref_type":"commit","ref":%q}`, i.repository, i.head)
		name := i.workflow("perago_stage_doctor_"+i.suffix, map[string]any{"workspace": "${workflow.input.workspace}", "prefix": "data/"})
		first := i.start(name, `{"workspace":`+workspace+`}`, nil)
		if alone := i.examineIn(nil, "one-writer").about(doctor.CheckOneWriter, i.address()); len(alone) > 0 {
			i.Errorf("one writer: %+v", alone)
		}
		second := i.start(name, `{"workspace":`+workspace+`}`, nil)
		ids := []string{string(first), string(second)}
		slices.Sort(ids)
		i.says(i.examineIn(nil, "one-writer"), doctor.CheckOneWriter, i.address(), doctor.Error, "the open workflows "+strings.Join(ids, ", ")+" publish to it")
		i.no(i.operator.Terminate(i.ctx, second, "one is enough"))
		if alone := i.examineIn(nil, "one-writer").about(doctor.CheckOneWriter, i.address()); len(alone) > 0 {
			i.Errorf("one writer: %+v", alone)
		}
	})
}

// A server that is not there, takes no credentials, or is at another path.
func TestDoctorOfServers(t *testing.T) {
	t.Parallel()
	nobody, err := unusedAddress()
	if err != nil {
		t.Fatal(err)
	}
	onBothServers(t, func(i *installation) {
		well := i.examineIn(nil, "conductor,lakefs")
		i.says(well, doctor.CheckConductor, "", doctor.OK, "")
		i.says(well, doctor.CheckLakeFS, "", doctor.OK, "")
		for _, c := range []struct {
			check         doctor.Check
			name, value   string
			what, another string
		}{
			{doctor.CheckConductor, "CONDUCTOR_SERVER_URL", nobody, "Conductor gives no answer", ""},
			{doctor.CheckConductor, "CONDUCTOR_SERVER_URL", i.environment["CONDUCTOR_SERVER_URL"] + "/wrong", "Conductor is not what answers there", ""},
			{doctor.CheckConductor, "CONDUCTOR_SERVER_URL", i.environment["LAKECTL_SERVER_ENDPOINT_URL"], "Conductor ", ""},
			{doctor.CheckLakeFS, "LAKECTL_SERVER_ENDPOINT_URL", nobody, "lakeFS gives no answer", ""},
			{doctor.CheckLakeFS, "LAKECTL_SERVER_ENDPOINT_URL", i.environment["CONDUCTOR_SERVER_URL"], "lakeFS is not what answers there", ""},
			{doctor.CheckLakeFS, "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", "another-secret", "lakeFS refuses the credentials (401)", ""},
		} {
			ill := i.examineIn(map[string]string{c.name: c.value}, "conductor,lakefs")
			i.says(ill, c.check, "", doctor.Error, c.what)
			other := doctor.CheckLakeFS
			if c.check == other {
				other = doctor.CheckConductor
			}
			i.says(ill, other, "", doctor.OK, "")
		}
	})
}

// Conductor has no credentials of its own to refuse: a server before it does.
func TestDoctorOfRefusals(t *testing.T) {
	t.Parallel()
	for status, what := range map[int]string{
		401: "Conductor refuses the credentials (401): no", 403: "Conductor knows the key, which may not even ask (403): no", 503: "Conductor answers 503: no",
	} {
		i := inMemory(t, lakefstest.NewServer(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, fmt.Sprintf(`{"status":%d,"message":"no"}`, status), status)
		}))
		i.says(i.examineIn(nil, "conductor"), doctor.CheckConductor, "", doctor.Error, what)
	}
	i := inMemory(t, lakefstest.NewServer(), conductortest.New(nil))
	i.says(i.examineIn(nil, "conductor"), doctor.CheckConductor, "", doctor.OK, "")
}

// Each action that a policy allows, taken away; the real lakeFS has no policies,
// and there each action is asked for and granted.
func TestDoctorOfPermissions(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(i *installation) {
		well := i.examine("permissions", "--import", "local:///nowhere/")
		for _, worker := range doctor.Workers() {
			i.says(well, doctor.CheckPermissions, string(worker), doctor.OK, "actions were asked for")
		}
		if well.code != exitOK {
			i.Errorf("exit code %d: %s", well.code, well.stderr)
		}
		head, err := i.lake.Head(i.ctx, i.repository, "main")
		i.no(err)
		branches, err := i.lake.Branches(i.ctx, i.repository, "")
		i.no(err)
		if head != i.head || len(branches) != 1 {
			i.Errorf("asking for permissions did something: %s, %v", head, branches)
		}
	})
	server := lakefstest.NewServer()
	i := inMemory(t, server, conductortest.New(nil))
	for _, worker := range doctor.Workers() {
		arguments := []string{"--for", string(worker), "--prefix", "models/", "--import", "s3://bucket/in/"}
		code, stdout, stderr := i.run(nil, append([]string{"doctor", i.address(), "--policy", string(worker)}, arguments[2:]...)...)
		if code != exitOK {
			t.Fatal(stderr)
		}
		var policy struct{ Statement []lakefstest.Statement }
		i.no(json.Unmarshal([]byte(stdout), &policy))
		server.Restrict(policy.Statement)
		i.says(i.examine("permissions", arguments...), doctor.CheckPermissions, string(worker), doctor.OK, "actions were asked for")
		for at, statement := range policy.Statement {
			if statement.Effect != "allow" {
				continue
			}
			for _, action := range statement.Action {
				less := slices.Clone(policy.Statement)
				less[at].Action = slices.DeleteFunc(slices.Clone(statement.Action), func(one string) bool { return one == action })
				server.Restrict(less)
				ill := i.examine("permissions", arguments...)
				denied := slices.DeleteFunc(ill.about(doctor.CheckPermissions, string(worker)), func(f doctor.Finding) bool { return f.State != doctor.Error })
				if len(denied) == 0 || ill.code != exitFailed || !strings.Contains(denied[0].What, "the key may not: lakeFS answered 401: insufficient permissions") {
					t.Errorf("%s without %s on %s: %+v", worker, action, statement.Resource, ill.Findings)
					continue
				}
				// An import needs more than its own action.
				named := strings.HasPrefix(denied[0].Subject, string(worker)+": "+action)
				if imports := strings.Contains(denied[0].Subject, "fs:ImportFromStorage"); len(denied) > 2 || !named && !imports {
					t.Errorf("%s without %s on %s: %+v", worker, action, statement.Resource, denied)
				}
			}
		}
	}
}

// What is registered: nothing, all of it, and something else.
func TestDoctorOfDefinitions(t *testing.T) {
	t.Parallel()
	i := inMemory(t, lakefstest.NewServer(), conductortest.New(nil))
	const checks = "registered,drift"
	ill := i.examineIn(nil, checks)
	for _, name := range []string{"perago_stage", "perago_publish", "perago_cleanup", "perago_cancel"} {
		i.says(ill, doctor.CheckRegistered, name, doctor.Error, "is not registered")
	}
	i.says(ill, doctor.CheckRegistered, "perago_checkout", doctor.Warning, "workflows that check out need it")
	i.must("register")
	well := i.examineIn(nil, checks+",budget")
	i.says(well, doctor.CheckRegistered, "", doctor.OK, "5 definitions")
	i.says(well, doctor.CheckDrift, "", doctor.OK, "")
	i.says(well, doctor.CheckBudget, "", doctor.OK, "")

	change := func(name string, fields map[string]any) {
		raw, err := i.conductor.RawTaskDefinition(i.ctx, txn.TaskType(name))
		i.no(err)
		var definition map[string]any
		i.no(json.Unmarshal(raw, &definition))
		maps.Copy(definition, fields)
		raw, err = json.Marshal(definition)
		i.no(err)
		i.no(i.conductor.PutTaskDefinition(i.ctx, raw))
	}
	change("perago_cleanup", map[string]any{"timeoutPolicy": "TIME_OUT_WF", "retryCount": 7})
	ill = i.examineIn(nil, checks+",budget")
	i.says(ill, doctor.CheckDrift, "perago_cleanup", doctor.Warning, "retryCount: 7 -> 2")
	i.says(ill, doctor.CheckBudget, "perago_cleanup", doctor.Error, "timeoutPolicy")
	// A longer lease is the operator's to set.
	change("perago_publish", map[string]any{"responseTimeoutSeconds": 600})
	if tuned := i.examineIn(nil, checks).about(doctor.CheckDrift, "perago_publish"); len(tuned) > 0 {
		t.Errorf("the budget is to be tuned: %+v", tuned)
	}
	i.must("register")
	i.says(i.examineIn(nil, checks), doctor.CheckDrift, "", doctor.OK, "")
}

// Clocks that are apart, either way.
func TestDoctorOfClocks(t *testing.T) {
	t.Parallel()
	server := conductortest.New(nil)
	for ahead, want := range map[time.Duration]doctor.State{
		0: doctor.OK, 5 * time.Minute: doctor.Warning, -5 * time.Minute: doctor.Warning, time.Hour: doctor.Error,
	} {
		i := inMemory(t, lakefstest.NewServer(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
			server.ServeHTTP(w, r)
		}))
		e := i.examineIn(nil, "clocks")
		i.says(e, doctor.CheckClocks, "Conductor", want, "the clock is")
		i.says(e, doctor.CheckClocks, "lakeFS", doctor.OK, "")
	}
	i := inMemory(t, lakefstest.NewServer(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		server.ServeHTTP(w, r)
	}))
	i.says(i.examineIn(nil, "clocks"), doctor.CheckClocks, "Conductor", doctor.Unknown, "says its time")
}

// What the environment lacks.
func TestDoctorOfSettings(t *testing.T) {
	t.Parallel()
	i := inMemory(t, lakefstest.NewServer(), conductortest.New(nil))
	const checks = "conductor-id,fence-required"
	well := i.examineIn(nil, checks)
	i.says(well, doctor.CheckConductorID, "", doctor.OK, i.environment["PERAGO_CONDUCTOR_ID"])
	i.says(well, doctor.CheckFenceRequired, "", doctor.OK, "")
	ill := i.examineIn(map[string]string{"PERAGO_CONDUCTOR_ID": "", "PERAGO_REQUIRE_HARD_FENCE": "false"}, checks)
	i.says(ill, doctor.CheckConductorID, "127.0.0.1", doctor.Warning, "PERAGO_CONDUCTOR_ID is not set")
	i.says(ill, doctor.CheckFenceRequired, "", doctor.Warning, "PERAGO_REQUIRE_HARD_FENCE is not true")
}

// A key that may read less than doctor wants: what cannot be read is unknown.
func TestDoctorWithAWorkersKey(t *testing.T) {
	t.Parallel()
	server := lakefstest.NewServer()
	i := inMemory(t, server, conductortest.New(nil))
	_, stdout, _ := i.run(nil, "doctor", i.address(), "--policy", "publish")
	var policy struct{ Statement []lakefstest.Statement }
	i.no(json.Unmarshal([]byte(stdout), &policy))
	server.Restrict(policy.Statement)
	e := i.examine("lakefs,protected,retention,permissions", "--for", "publish")
	i.says(e, doctor.CheckLakeFS, "", doctor.OK, "")
	i.says(e, doctor.CheckPermissions, "publish", doctor.OK, "")
	i.says(e, doctor.CheckProtected, "", doctor.Unknown, "branch_protection: insufficient permissions")
	if do := e.about(doctor.CheckProtected, "")[0].Do; !strings.Contains(do, "a key that may read this") {
		t.Error(do)
	}
	if !strings.Contains(e.stderr, "0 errors, 0 warnings, and 2 checks could not be made") {
		t.Error(e.stderr)
	}
}
