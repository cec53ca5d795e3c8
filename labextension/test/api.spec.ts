import { ServerConnection } from '@jupyterlab/services';
import { expect, it } from 'vitest';

import { ServerApi } from '../src/api';
import type { Sandbox } from '../src/tokens';
import { sandbox } from './samples';

/** A server that answers every request with this, and the requests it got. */
function server(status: number, body: string): { api: ServerApi; requests: Request[] } {
  const requests: Request[] = [];
  const settings = ServerConnection.makeSettings({
    baseUrl: 'http://jupyter.invalid/user/ann/',
    token: 'secret-token',
    fetch: (input: RequestInfo | URL) => {
      requests.push(input as Request);
      return Promise.resolve(new Response(body, { status }));
    }
  });
  return { api: new ServerApi(settings), requests };
}

it('joins what several supervisors run, and what could not be asked', async () => {
  const plain: Partial<Sandbox> = sandbox();
  delete plain.supervisor;
  const { api } = server(
    200,
    JSON.stringify({
      supervisors: [
        { id: 'a', error: null, sandboxes: [plain] },
        { id: 'b', error: 'b did not answer', sandboxes: [] }
      ]
    })
  );
  const { sandboxes, problems } = await api.snapshot();
  expect(sandboxes.map(box => [box.supervisor, box.name, box.state])).toEqual([
    ['a', 'main', 'busy']
  ]);
  expect(problems).toEqual(['b did not answer']);
});

it('keeps below the base URL, whatever a sandbox is called', async () => {
  const { api, requests } = server(200, '{}');
  await api.act('sup/../1', '../api/contents?x=#', 'kill');
  expect(requests[0]?.method).toBe('POST');
  // The client adds the time as a query, against caches.
  expect(requests[0]?.url.split('?')[0]).toBe(
    'http://jupyter.invalid/user/ann/ipysandbox/sandboxes/sup%2F..%2F1/..%2Fapi%2Fcontents%3Fx%3D%23/kill'
  );
});

it('says what the server said', async () => {
  const { api } = server(404, JSON.stringify({ message: 'No sandbox named "x".' }));
  await expect(api.act('s', 'x', 'interrupt')).rejects.toThrow('No sandbox named "x".');
});

it('says which request failed when a proxy answers instead', async () => {
  const { api } = server(502, '<html>Bad gateway</html>');
  await expect(api.snapshot()).rejects.toThrow('The server answered 502 to state.');
});
