import { ServerConnection } from '@jupyterlab/services';
import { expect, it } from 'vitest';

import { ServerApi } from '../src/api';
import { EVERYTHING } from '../src/auditModel';

/** A server that answers every request with this, and the requests it got. */
function server(status: number, body: string): { api: ServerApi; requests: Request[] } {
  const requests: Request[] = [];
  const settings = ServerConnection.makeSettings({
    baseUrl: 'http://jupyter.invalid/user/ann/',
    token: 'secret-token',
    appendToken: false,
    fetch: (input: RequestInfo | URL) => {
      requests.push(input as Request);
      return Promise.resolve(new Response(body, { status }));
    }
  });
  return { api: new ServerApi(settings), requests };
}

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
  await expect(api.verify()).rejects.toThrow('The server answered 502 to audit/verify.');
});

it('asks with the filters that are set, and no word that is written becomes another', async () => {
  const { api, requests } = server(200, '{"records": [], "older": null}');
  await api.audit({ ...EVERYTHING, text: 'a&size=9 #' }, '5-7', 100);
  const query = new URL(requests[0]?.url ?? '').searchParams;
  expect([query.get('text'), query.get('size'), query.get('before')]).toEqual([
    'a&size=9 #',
    '100',
    '5-7'
  ]);
  expect(query.has('action')).toBe(false);
  expect(api.exportUrl(EVERYTHING, 'csv')).not.toContain('secret-token');
});
