CREATE TABLE sayso_contents (
    id text NOT NULL COLLATE pg_catalog."C",
    doc text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE sayso_log (
    seq bigint NOT NULL,
    at double precision NOT NULL,
    previous text NOT NULL COLLATE pg_catalog."C",
    hash text NOT NULL COLLATE pg_catalog."C",
    entry text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE sayso_meta (
    key text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE sayso_proposals (
    id text NOT NULL COLLATE pg_catalog."C",
    turn text COLLATE pg_catalog."C",
    conversation text COLLATE pg_catalog."C",
    reference text COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    owner text COLLATE pg_catalog."C",
    lease double precision,
    created double precision NOT NULL,
    "position" bigint NOT NULL,
    ended double precision,
    kept integer NOT NULL,
    doc text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE sayso_turns (
    id text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    owner text COLLATE pg_catalog."C",
    lease double precision,
    created double precision NOT NULL,
    ended double precision,
    doc text NOT NULL COLLATE pg_catalog."C"
);
INSERT INTO sayso_contents VALUES ('call0', '[{"name":"call0","\u00e9":"\u2603"},null,null,null,null,null]');
INSERT INTO sayso_contents VALUES ('call1', '[{"name":"call1","\u00e9":"\u2603"},null,null,null,null,null]');
INSERT INTO sayso_contents VALUES ('call2', '[{"name":"call2","\u00e9":"\u2603"},null,null,null,null,null]');
INSERT INTO sayso_contents VALUES ('call3', '[{"name":"call3","\u00e9":"\u2603"},null,null,null,null,null]');
INSERT INTO sayso_contents VALUES ('call7', '[{"name":"call7","\u00e9":"\u2603"},null,"Rejected: no",null,null,"no"]');
INSERT INTO sayso_contents VALUES ('call4', '[{"name":"call4","\u00e9":"\u2603"},null,"it is DONE",{"n":1},null,null]');
INSERT INTO sayso_contents VALUES ('call5', '[{"name":"call5","\u00e9":"\u2603"},null,"it is DONE",{"n":1},null,null]');
INSERT INTO sayso_contents VALUES ('call6', '[{"name":"call6","\u00e9":"\u2603"},null,"it is FAILED",{"n":1},null,null]');
INSERT INTO sayso_log VALUES (4, 1795809093.862474, '73bb6cce36eb32814305e6ff89d83d5857e956d48e9e6edeb9146d81d2d62b67', '055bb03ab639f7b068a69bae7d2f9abb23de1b3430b5caf5466aee6a2c16c26c', '{"event":"proposed","id":"call3","kind":"tool_call","name":"delete_pod","input":"962034dd50ee6b6d1e9df792683e6af248aa76ffef04d8f8dae32825acf4ee1d","fence":0,"principal":null,"protocol":"","address":null}');
INSERT INTO sayso_log VALUES (5, 1795809093.865624, '055bb03ab639f7b068a69bae7d2f9abb23de1b3430b5caf5466aee6a2c16c26c', 'a34c23b646473deff4a511e836d0f4807e4bcb8bd3fb3896a7336e0bf6c945b3', '{"event":"proposed","id":"call4","kind":"tool_call","name":"delete_pod","input":"8730852b3fa874e2f433ee3a23f610e359fc310934de32d5682fa763977061f1","fence":0,"principal":null,"protocol":"","address":null}');
INSERT INTO sayso_log VALUES (6, 1795809093.871636, 'a34c23b646473deff4a511e836d0f4807e4bcb8bd3fb3896a7336e0bf6c945b3', 'd12052e18c4c8806536239d30202a863bea35cf80346d25dc0075b4e31cda59a', '{"event":"proposed","id":"call5","kind":"tool_call","name":"delete_pod","input":"e61c6bc1b89b5b6399dad4863e07fe1bba7979fd3207bc098f20cb81359a852b","fence":0,"principal":null,"protocol":"","address":null}');
INSERT INTO sayso_log VALUES (7, 1795809093.872743, 'd12052e18c4c8806536239d30202a863bea35cf80346d25dc0075b4e31cda59a', 'c822f7926292d812d373287cb0af2c06b9b1006cd27395e167f133d189cc13c9', '{"event":"proposed","id":"call6","kind":"tool_call","name":"delete_pod","input":"066519098ffb936f637fc676375aff40cc99fb1b98d5629ebca2765d0830599f","fence":0,"principal":null,"protocol":"","address":null}');
INSERT INTO sayso_log VALUES (8, 1795809093.895286, 'c822f7926292d812d373287cb0af2c06b9b1006cd27395e167f133d189cc13c9', '2a89002489f1a9d08d274a4ac13af6b90ac450b4d6a23024c24efa59afa6cbfe', '{"event":"proposed","id":"call7","kind":"tool_call","name":"delete_pod","input":"5352dd46d6d88814e86e79a914adf81d0d8c5def5ef35136fc30285049055fc9","fence":0,"principal":null,"protocol":"","address":null}');
INSERT INTO sayso_log VALUES (9, 1795809093.904062, '2a89002489f1a9d08d274a4ac13af6b90ac450b4d6a23024c24efa59afa6cbfe', '9e7b4929ee4bccc895e0f5ce01eeff4979dccbf81a7f268f52480200301dad77', '{"event":"approved","id":"call2","kind":"tool_call","name":"delete_pod","input":"a9e131526caeb31b02d4277322fc83ac8b12913022881ce9e1eb1a3a53bd64e9","fence":0,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1"}');
INSERT INTO sayso_log VALUES (10, 1795809093.915219, '9e7b4929ee4bccc895e0f5ce01eeff4979dccbf81a7f268f52480200301dad77', 'b3df174285d7528d762099f78a3f7b685fe5b98b5a0e3b82ada889c911f4fdd2', '{"event":"approved","id":"call3","kind":"tool_call","name":"delete_pod","input":"962034dd50ee6b6d1e9df792683e6af248aa76ffef04d8f8dae32825acf4ee1d","fence":0,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1"}');
INSERT INTO sayso_log VALUES (11, 1795809093.915219, 'b3df174285d7528d762099f78a3f7b685fe5b98b5a0e3b82ada889c911f4fdd2', '7180e0080b9c519fdd53623c5785eef29a714674e4657768656b1137a8ad6ddd', '{"event":"claimed","id":"call3","kind":"tool_call","name":"delete_pod","input":"962034dd50ee6b6d1e9df792683e6af248aa76ffef04d8f8dae32825acf4ee1d","fence":1}');
INSERT INTO sayso_log VALUES (12, 1795809093.917268, '7180e0080b9c519fdd53623c5785eef29a714674e4657768656b1137a8ad6ddd', '2910bb9a56179f9de442e188b46d28b6e9284e26ad69c6d1d650629ab886e480', '{"event":"approved","id":"call4","kind":"tool_call","name":"delete_pod","input":"8730852b3fa874e2f433ee3a23f610e359fc310934de32d5682fa763977061f1","fence":0,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1"}');
INSERT INTO sayso_log VALUES (13, 1795809093.917268, '2910bb9a56179f9de442e188b46d28b6e9284e26ad69c6d1d650629ab886e480', '560e34c1689543d728784b0ca562ab800545e36649a5654af74617457acc7072', '{"event":"claimed","id":"call4","kind":"tool_call","name":"delete_pod","input":"8730852b3fa874e2f433ee3a23f610e359fc310934de32d5682fa763977061f1","fence":1}');
INSERT INTO sayso_log VALUES (14, 1795809093.921796, '560e34c1689543d728784b0ca562ab800545e36649a5654af74617457acc7072', 'b36621627de30e36ee0c2651f020ef5eb8df62dd81823e537e3f98107143bfb3', '{"event":"approved","id":"call5","kind":"tool_call","name":"delete_pod","input":"e61c6bc1b89b5b6399dad4863e07fe1bba7979fd3207bc098f20cb81359a852b","fence":0,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1"}');
INSERT INTO sayso_log VALUES (15, 1795809093.921796, 'b36621627de30e36ee0c2651f020ef5eb8df62dd81823e537e3f98107143bfb3', '9fa6e3942827d25f7b91ccd06ef0fe2b4a750b90dba6c1c5bc22bf9c39fa1093', '{"event":"claimed","id":"call5","kind":"tool_call","name":"delete_pod","input":"e61c6bc1b89b5b6399dad4863e07fe1bba7979fd3207bc098f20cb81359a852b","fence":1}');
INSERT INTO sayso_log VALUES (16, 1795809093.929527, '9fa6e3942827d25f7b91ccd06ef0fe2b4a750b90dba6c1c5bc22bf9c39fa1093', '0d4667eb66dedddc0743055b279508ff3fb7ba172478c2040170037402a6974f', '{"event":"approved","id":"call6","kind":"tool_call","name":"delete_pod","input":"066519098ffb936f637fc676375aff40cc99fb1b98d5629ebca2765d0830599f","fence":0,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1"}');
INSERT INTO sayso_log VALUES (17, 1795809093.929527, '0d4667eb66dedddc0743055b279508ff3fb7ba172478c2040170037402a6974f', '7b13a055823d2ccbe85404e84d4b6b240946bdceed1a86334cc004ee98e289f6', '{"event":"claimed","id":"call6","kind":"tool_call","name":"delete_pod","input":"066519098ffb936f637fc676375aff40cc99fb1b98d5629ebca2765d0830599f","fence":1}');
INSERT INTO sayso_log VALUES (18, 1795809093.934986, '7b13a055823d2ccbe85404e84d4b6b240946bdceed1a86334cc004ee98e289f6', '77b2d635dcafb58cb1447e3d3be151cad578ffd27bad01c0d1374f0ae2b9d9a2', '{"event":"rejected","id":"call7","kind":"tool_call","name":"delete_pod","input":"5352dd46d6d88814e86e79a914adf81d0d8c5def5ef35136fc30285049055fc9","fence":0,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","output":"02dca5728901a62da0707a79a3a08a8eb7903681bf4362ed4188b4a94fbaf03a"}');
INSERT INTO sayso_log VALUES (19, 1795809093.938785, '77b2d635dcafb58cb1447e3d3be151cad578ffd27bad01c0d1374f0ae2b9d9a2', '884d516eb3d2a057424d2812c7e1b211247d0f7f8ee35994446d0048632d0cbb', '{"event":"done","id":"call4","kind":"tool_call","name":"delete_pod","input":"8730852b3fa874e2f433ee3a23f610e359fc310934de32d5682fa763977061f1","fence":1,"output":"6690acc7f99094afc81265a681efbe55ffb2b3351eea179451b6bf132d4dba87"}');
INSERT INTO sayso_log VALUES (20, 1795809093.943524, '884d516eb3d2a057424d2812c7e1b211247d0f7f8ee35994446d0048632d0cbb', '241e8e24847c1e11d1ceee4cf7c4096dba283380c11428b6e1ae6f38892759e4', '{"event":"done","id":"call5","kind":"tool_call","name":"delete_pod","input":"e61c6bc1b89b5b6399dad4863e07fe1bba7979fd3207bc098f20cb81359a852b","fence":1,"output":"6690acc7f99094afc81265a681efbe55ffb2b3351eea179451b6bf132d4dba87"}');
INSERT INTO sayso_log VALUES (21, 1795809093.947686, '241e8e24847c1e11d1ceee4cf7c4096dba283380c11428b6e1ae6f38892759e4', 'b9fdab476ca7326f64cb3bcabf9f6b0c54567916323e0a9a49d7aa37a381f3ba', '{"event":"failed","id":"call6","kind":"tool_call","name":"delete_pod","input":"066519098ffb936f637fc676375aff40cc99fb1b98d5629ebca2765d0830599f","fence":1,"output":"e67b52a007f98adebdef7b61cbb27813764c05cb2fb420a4e69500aa3d390abf"}');
INSERT INTO sayso_log VALUES (22, 1795809093.950401, 'b9fdab476ca7326f64cb3bcabf9f6b0c54567916323e0a9a49d7aa37a381f3ba', 'f2aadb32e8c68e724a1c80f6044bf3865feeb7747f0740c94b01aac742d42ca2', '{"event":"checkpoint","seq":3,"hash":"73bb6cce36eb32814305e6ff89d83d5857e956d48e9e6edeb9146d81d2d62b67"}');
INSERT INTO sayso_meta VALUES ('schema', '1');
INSERT INTO sayso_meta VALUES ('head', '[22,1795809093.950401,{"event":"checkpoint","seq":3,"hash":"73bb6cce36eb32814305e6ff89d83d5857e956d48e9e6edeb9146d81d2d62b67"},"b9fdab476ca7326f64cb3bcabf9f6b0c54567916323e0a9a49d7aa37a381f3ba","f2aadb32e8c68e724a1c80f6044bf3865feeb7747f0740c94b01aac742d42ca2"]');
INSERT INTO sayso_proposals VALUES ('call0', 'turn-call0', NULL, NULL, 'PENDING', NULL, NULL, 1795809093.853155, 0, 2795809093.853155, 1, '{"id":"call0","kind":"tool_call","name":"delete_pod","turn":"turn-call0","index":0,"call_id":"call-call0","created":1795809093.853155,"expires":2795809093.853155,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"PENDING","idempotent":false,"decision":null,"owner":null,"fence":0,"finished":null,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call1', 'turn-call1', NULL, NULL, 'PENDING', NULL, NULL, 1795809093.858805, 0, 2795809093.8588047, 1, '{"id":"call1","kind":"tool_call","name":"delete_pod","turn":"turn-call1","index":0,"call_id":"call-call1","created":1795809093.858805,"expires":2795809093.8588047,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"PENDING","idempotent":false,"decision":null,"owner":null,"fence":0,"finished":null,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call2', 'turn-call2', NULL, NULL, 'APPROVED', NULL, NULL, 1795809093.861172, 0, 2795809093.8611717, 1, '{"id":"call2","kind":"tool_call","name":"delete_pod","turn":"turn-call2","index":0,"call_id":"call-call2","created":1795809093.861172,"expires":2795809093.8611717,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"APPROVED","idempotent":false,"decision":{"approved":true,"at":1795809093.904062,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","through_approvals":false},"owner":null,"fence":0,"finished":null,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call3', 'turn-call3', NULL, NULL, 'EXECUTING', 'fd3fc13dce7339e0d47afa683f1b2073', 2795809093.9152193, 1795809093.862474, 0, NULL, 1, '{"id":"call3","kind":"tool_call","name":"delete_pod","turn":"turn-call3","index":0,"call_id":"call-call3","created":1795809093.862474,"expires":2795809093.862474,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"EXECUTING","idempotent":false,"decision":{"approved":true,"at":1795809093.915219,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","through_approvals":false},"owner":{"id":"fd3fc13dce7339e0d47afa683f1b2073","boot":"67c871d0-0698-453a-aa9f-c5b5dc419934","fence":1,"lease":2795809093.9152193,"claim":"bfc6f2ee191e0d81"},"fence":1,"finished":null,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call7', 'turn-call7', NULL, NULL, 'REJECTED', NULL, NULL, 1795809093.895286, 0, 1795809093.934986, 1, '{"id":"call7","kind":"tool_call","name":"delete_pod","turn":"turn-call7","index":0,"call_id":"call-call7","created":1795809093.895286,"expires":2795809093.895286,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"REJECTED","idempotent":false,"decision":{"approved":false,"at":1795809093.934986,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","through_approvals":false},"owner":null,"fence":0,"finished":1795809093.934986,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call4', 'turn-call4', NULL, NULL, 'DONE', NULL, NULL, 1795809093.865624, 0, 1795809093.938785, 1, '{"id":"call4","kind":"tool_call","name":"delete_pod","turn":"turn-call4","index":0,"call_id":"call-call4","created":1795809093.865624,"expires":2795809093.865624,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"DONE","idempotent":false,"decision":{"approved":true,"at":1795809093.917268,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","through_approvals":false},"owner":null,"fence":1,"finished":1795809093.938785,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call5', 'turn-call5', NULL, NULL, 'DONE', NULL, NULL, 1795809093.871636, 0, 1795809093.943524, 1, '{"id":"call5","kind":"tool_call","name":"delete_pod","turn":"turn-call5","index":0,"call_id":"call-call5","created":1795809093.871636,"expires":2795809093.871636,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"DONE","idempotent":false,"decision":{"approved":true,"at":1795809093.921796,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","through_approvals":false},"owner":null,"fence":1,"finished":1795809093.943524,"duration":null}');
INSERT INTO sayso_proposals VALUES ('call6', 'turn-call6', NULL, NULL, 'FAILED', NULL, NULL, 1795809093.872743, 0, 1795809093.947686, 1, '{"id":"call6","kind":"tool_call","name":"delete_pod","turn":"turn-call6","index":0,"call_id":"call-call6","created":1795809093.872743,"expires":2795809093.8727427,"conversation":"","reference":"","description":"","input_description":{},"principal":null,"tenant":null,"user":null,"protocol":"","address":null,"client":null,"state":"FAILED","idempotent":false,"decision":{"approved":true,"at":1795809093.929527,"who":"anna","claimed":true,"protocol":"v2","address":"127.0.0.1","through_approvals":false},"owner":null,"fence":1,"finished":1795809093.947686,"duration":null}');
INSERT INTO sayso_turns VALUES ('turn-call0', 'SUSPENDED', NULL, NULL, 1795809093.853155, NULL, '{"id":"turn-call0","created":1795809093.853155,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call0"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call1', 'SUSPENDED', NULL, NULL, 1795809093.858805, NULL, '{"id":"turn-call1","created":1795809093.858805,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call1"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call2', 'SUSPENDED', NULL, NULL, 1795809093.861172, NULL, '{"id":"turn-call2","created":1795809093.861172,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call2"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call3', 'SUSPENDED', NULL, NULL, 1795809093.862474, NULL, '{"id":"turn-call3","created":1795809093.862474,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call3"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call4', 'SUSPENDED', NULL, NULL, 1795809093.865624, NULL, '{"id":"turn-call4","created":1795809093.865624,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call4"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call5', 'SUSPENDED', NULL, NULL, 1795809093.871636, NULL, '{"id":"turn-call5","created":1795809093.871636,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call5"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call6', 'SUSPENDED', NULL, NULL, 1795809093.872743, NULL, '{"id":"turn-call6","created":1795809093.872743,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call6"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
INSERT INTO sayso_turns VALUES ('turn-call7', 'SUSPENDED', NULL, NULL, 1795809093.895286, NULL, '{"id":"turn-call7","created":1795809093.895286,"conversation":"","reference":"","principal":null,"tenant":null,"user":null,"transcript":[],"prefix":"","calls":["call7"],"from_callable":false,"state":"SUSPENDED","request":null,"reply":null,"owner":null,"fence":0,"ended":null}');
ALTER TABLE ONLY sayso_contents
    ADD CONSTRAINT sayso_contents_pkey PRIMARY KEY (id);
ALTER TABLE ONLY sayso_log
    ADD CONSTRAINT sayso_log_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY sayso_meta
    ADD CONSTRAINT sayso_meta_pkey PRIMARY KEY (key);
ALTER TABLE ONLY sayso_proposals
    ADD CONSTRAINT sayso_proposals_pkey PRIMARY KEY (id);
ALTER TABLE ONLY sayso_turns
    ADD CONSTRAINT sayso_turns_pkey PRIMARY KEY (id);
CREATE INDEX sayso_proposals_conversation ON sayso_proposals USING btree (conversation) WHERE (conversation IS NOT NULL);
CREATE INDEX sayso_proposals_created ON sayso_proposals USING btree (created, "position", id);
CREATE INDEX sayso_proposals_ended ON sayso_proposals USING btree (ended) WHERE (kept = 1);
CREATE INDEX sayso_proposals_owner ON sayso_proposals USING btree (owner, state) WHERE (owner IS NOT NULL);
CREATE INDEX sayso_proposals_reference ON sayso_proposals USING btree (reference) WHERE (reference IS NOT NULL);
CREATE INDEX sayso_proposals_state ON sayso_proposals USING btree (state, created, "position", id);
CREATE INDEX sayso_proposals_turn ON sayso_proposals USING btree (turn) WHERE (turn IS NOT NULL);
CREATE INDEX sayso_turns_ended ON sayso_turns USING btree (ended) WHERE (ended IS NOT NULL);
CREATE INDEX sayso_turns_open ON sayso_turns USING btree (created) WHERE (ended IS NULL);
CREATE INDEX sayso_turns_owner ON sayso_turns USING btree (owner, state) WHERE (owner IS NOT NULL);
